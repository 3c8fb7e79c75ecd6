"""Retrievers behind HTTP: ``grls serve FOLDER``. It needs the extra ``serve``.

A request becomes a job of a retriever's one thread. Jobs that go together are answered as one batch.

``app`` makes the application from retrievers and options; ``routes/`` holds its addresses, ``page/`` the
pages, ``answers/`` the language model, ``tools/`` the tools of an agent. ``start`` is what is read and
said before anything is loaded, ``run`` serves until a signal, ``listening`` says how; ``front/`` listens
in a process of its own, and lets another one search. ``bodies``, ``bodies_trace`` and
``bodies_retrievers`` are requests and responses, ``schema`` describes them with the limits of the server.
``worker`` is the thread and its queue, ``jobs`` what it does, ``waiting`` waits for it. ``served`` holds
the opened retrievers and loads new versions, ``serving`` opens them and is what all addresses share.
``problems`` turns errors into responses, and ``faults`` words what a request lacks. ``guards`` is what a
request passes first: ``access`` checks keys, tokens and rates, ``hosts`` host names, ``bodylimit`` bounds
what is read. ``metrics`` counts, ``request_log`` writes a line for each request. ``examples`` are queries
to try, ``garbage`` keeps the garbage collector away. ``options`` are the options of the command.
"""
