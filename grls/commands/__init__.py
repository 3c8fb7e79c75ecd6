"""The commands of ``grls``: one module a command, one function of the same name in it.

The arguments of the function are the options, its docstring is the ``--help``. ``grls.cli`` imports a
module only when its command is called.

``answers``, ``check``, ``cut``, ``ensemble``, ``evaluate``, ``explain``, ``index``, ``neighbours``,
``output``, ``portions``, ``priors``, ``program``, ``propositions``, ``pseudo_queries``, ``ralm``, ``read``,
``report``, ``retrieve``, ``riches``, ``run_files``, ``sources``, ``train_biencoder``, ``train_reranker``,
``tune_rescore``, ``tune_dynamic``, ``tune_hybrid``, ``update``.
"""
