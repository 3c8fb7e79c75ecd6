"""Retrievers behind HTTP: ``grls serve FOLDER``. It needs the extra ``serve``.

A request becomes a job of a retriever's one thread. Jobs of one key are answered as one batch.

``app`` makes the application and its pages, ``routes`` answers the addresses of retrievers, ``bodies`` are
requests and responses, ``page/`` holds the pages, ``tools/`` the tools of an agent, ``answering`` the
language model. ``start`` names folders and prints lines before anything is loaded, ``run`` listens, loads
and serves until a signal, ``replicas`` lets Ray Serve run several of these processes. ``worker`` is the
thread, its queue and its jobs; ``served`` is an opened retriever, which loads its new versions; ``serving``
is the state that all addresses share. ``problems`` turns errors into responses, ``guards`` is the
middleware, ``options`` are the options, ``judge_page`` is an application of its own, that of `grls judge`.
"""
