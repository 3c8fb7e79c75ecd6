"""Retrievers behind HTTP: ``grls serve FOLDER``. It needs the extra ``serve``.

A request becomes a job of a retriever's one thread. Jobs that go together are answered as one batch.

``app`` makes the application, its addresses and their description; ``routes/`` answers them, ``page/``
holds the pages, ``answers/`` the language model, ``tools/`` the tools of an agent. ``start`` is what is
read and said before anything is loaded, ``run`` serves until a signal, ``listening`` says how; ``front/``
listens in a process of its own, and lets another one search. ``bodies`` are requests and responses.
``worker`` is the thread, its queue and its jobs; ``waiting`` waits for it. ``served`` holds the opened
retrievers, loads new versions, and finds queries to try; ``serving`` opens them and is what all addresses
share. ``problems`` turns errors into responses, and words what a request lacks. ``guards`` is what a
request passes first: keys, tokens and rates, host names, the bound on what is read, a line of the log. It
counts, too. ``options`` are the options of the command.
"""
