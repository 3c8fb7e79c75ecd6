"""The front process of ``grls serve --worker.process true``: it listens, and a worker process searches.

The front process has no retriever. It checks what every server checks, hands a request to the worker process,
and hands the response back. When the worker process dies, another one is started, and the requests of which
nothing has been sent are searched again: searches change nothing, so that is safe.

``run`` begins, and serves until a signal. ``task`` says what the worker process serves, ``child`` is that
process, ``supervisor`` starts it and starts it again. ``connection`` is HTTP between the two, ``forward``
hands requests over and repeats them, ``reply`` is what the client has got, which a repeated stream goes on
from. ``state`` answers for the state of both processes, ``counts`` counts.
"""
