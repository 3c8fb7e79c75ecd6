"""The commands of ``grls``: one module a verb, one function in it.

The parameters before ``*`` are arguments, those behind it options; the docstring is the ``--help``.
``grls.cli`` imports a module only when its verb is called.

``answer_direct``, ``answer_dsp``, ``answer_follow_up``, ``answer_riches``, ``check``, ``evaluate``,
``explain``, ``fit``, ``fuse``, ``fuse_cut``, ``index``, ``neighbours``, ``opening``,
``propositions``, ``pseudo_queries``, ``ralm``, ``report``, ``retrieve``, ``run_shards``,
``search``, ``serve``, ``train``, ``train_biencoder``, ``train_reranker``, ``tune``, ``update``.
"""
