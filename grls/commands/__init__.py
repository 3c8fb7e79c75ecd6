"""The commands of ``grls``: one module a command, one function of the same name in it.

The arguments of the function are the options, its docstring is the ``--help``. ``grls.cli`` imports a
module only when its command is called.

``answer_direct``, ``answer_dsp``, ``answer_follow_up``, ``answer_riches`` (with ``readings``), ``answers``,
``check``, ``cut``, ``ensemble``, ``evaluate``, ``explain``, ``index``, ``neighbours``, ``output``,
``portions``, ``priors``, ``propositions``, ``pseudo_queries``, ``ralm``, ``report``, ``retrieve``,
``run_files``, ``train``, ``train_biencoder``, ``train_reranker``, ``tune_rescore``, ``tune_dynamic``,
``tune_hybrid``, ``update``.
"""
