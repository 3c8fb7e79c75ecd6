"""The commands of ``grls``: one module a verb, one function in it.

The parameters before ``*`` are arguments, those behind it options; the docstring is the ``--help``.
``grls.cli`` imports a module only when its verb is called.

``answer_direct``, ``answer_dsp``, ``answer_follow_up``, ``answer_riches``, ``check``,
``cutting``, ``evaluate``, ``explain``, ``fuse``, ``fuse_cut``, ``fusing``, ``index``, ``judge``,
``neighbours``, ``opening``, ``output``, ``portions``, ``propositions``, ``pseudo_queries``, ``quotes``,
``ralm``, ``readings``, ``renamed``, ``report``, ``retrieve``, ``run_files``, ``train``,
``train_biencoder``, ``train_reranker``, ``tune``, ``update``.
"""
