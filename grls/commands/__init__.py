"""The commands of ``grls``: one module a verb, with a function for each of its names.

The parameters before ``*`` are arguments, those behind it options; the docstring is the ``--help``.
``grls.cli`` imports a module only when its verb is called.

``answer``, ``check``, ``encoders`` (trainings of bi-encoders and rerankers), ``evaluate``, ``experiment``,
``explain``, ``fit``, ``fuse``, ``identify``, ``index``, ``judge``, ``retrievers``,
``propositions`` (and pseudo-queries), ``push``, ``ralm``, ``retrieve``, ``search``, ``serve``, ``tune``.

The stages of a generator have no function here: the options of ``grls train chains`` are the fields of
``grls.train.options.ChainStage``, and ``grls.cli`` calls ``grls.train.training.train`` with them.
"""
