"""Retrievers behind HTTP: ``grls serve FOLDER``. It needs the extra ``serve``.

A request becomes a job of a retriever's one thread. Jobs of one key are answered as one batch.

``app`` makes the application, its addresses and their description; ``routes`` answers them, ``page/`` holds
the pages, ``answering`` the language model, ``tools/`` the tools of an agent. ``start`` reads names and
prints lines before anything is loaded, ``run`` listens, loads and serves until a signal, ``replicas`` lets
Ray Serve run several of these processes. ``bodies`` are requests and responses. ``worker`` is the thread, its
queue and its jobs. ``served`` holds the opened retrievers, loads new versions, and finds queries to try;
``serving`` is the state that all addresses share, and waits for jobs. ``problems`` turns errors into
responses. ``guards`` is the middleware: keys and tokens, host names, bodies and places, a line of
the log, counts. ``telemetry`` makes spans. ``options`` are the options of the command and of the file of
``--server``.
"""
