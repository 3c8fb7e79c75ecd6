"""``grls fit``: the whole way from a data set to a tuned retriever, chosen for data, machine and time.

``options`` are what a user may choose. ``facts`` describes the data, ``machine`` the machine, ``models`` the
models that a bi-encoder and a generator begin with. ``timing`` keeps the ``speeds`` of all parts, which
``measure`` finds by a few steps of each ``recipe`` on a ``sample`` of the data, with the ``plain`` weights of
a generator that is stored compressed. ``plan`` is what is done: the stages with their times, and what is
skipped and why. ``planner`` chooses it: the greatest ``effort`` whose ``stages`` fit the budget
(``stage_times``); ``skipped`` says what is left out.

``run`` does it. ``splits`` reads and checks the data and divides them, with queries of a ``query_writer`` or
of ``pseudo`` where there are none. ``work`` is what all steps share; ``steps`` does each once: ``trainings``,
``folders``, ``tuning``. ``ending`` compares: ``comparing`` ranks the queries with all ``systems``, ``fusing``
fuses them, ``scoring`` says what they are worth, ``choose`` keeps one, ``page``, ``model_card`` and
``result`` write what came of it, with an ``account`` of what was done. ``journal`` keeps what is done,
and the plan (``kept_plan``), so that a killed run goes on; ``clock`` counts the time, and ``progress`` shows
it.
"""
