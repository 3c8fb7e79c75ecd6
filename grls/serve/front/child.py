"""The worker process: it serves retrievers at a Unix socket, to its front process alone.

It reads its task from standard input. It writes a message to standard output for each folder that is open,
and one once it is ready or cannot be. It ends when standard input ends: when the front process closes it, or
has died.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from grls.errors import GrlsError
from grls.io.ending import quiet
from grls.serve.app import version_body
from grls.serve.bodies import VersionBody
from grls.serve.front.connection import ACCEPTED
from grls.serve.front.task import WorkerTask, read_task
from grls.serve.guards import read_admin_token
from grls.serve.listening import log_lines
from grls.serve.worker import accepted

_GRACE = 5.0
"""Seconds that what runs is given when standard input has ended."""
_LONG = 86_400
"""Seconds for which a connection of the front process is kept."""


class MarkAccepted:
    """Reads the header of requests that no full queue refuses.

    Args:
        app: The application behind it.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            accepted.set(any(name == ACCEPTED for name, _ in scope["headers"]))
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
    """A server that reports when it listens, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Made(NamedTuple):
    """What a worker process serves.

    Attributes:
        app: The application, without what the front process checks.
        versions: The versions that answer, as they are sent.
    """

    app: Starlette
    versions: Sequence[VersionBody]


def made_of(task: WorkerTask, say: Callable[[str], object] = lambda _: None) -> Made:
    """Open the retrievers of a task, and make their application.

    Args:
        task: The task.
        say: Called with a line for each folder that is open.

    Raises:
        GrlsError: It cannot be served.
    """
    from grls.serve.app import plain_app  # late: what the worker process alone needs
    from grls.serve.served import queries_to_try
    from grls.serve.serving import open_serving

    admin = read_admin_token(task.access.admin)
    tried = () if task.examples is None else queries_to_try(task.examples)
    how = (task.limits, task.device, task.precision, task.answer, task.numbers)
    serving = open_serving(task.folders, *how, requests=False, say=say)
    serving.admin, serving.examples = admin, tried
    versions = [version_body(one.version) for one in serving.retrievers.values()]
    return Made(plain_app(serving, task.tools), versions)


def serve_task(made: Callable[[WorkerTask], Made] | None = None) -> None:
    """Serve the task that standard input names, until it ends.

    Args:
        made: Makes what is served; None: :func:`made_of`.
    """
    quiet()
    for number in (signal.SIGINT, signal.SIGTERM):  # the front process gets them, too, and ends this one
        signal.signal(number, lambda *_: None)
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints does not disturb the messages
    servers: list[uvicorn.Server] = []
    task = read_task(sys.stdin.buffer.readline())
    Thread(target=_end_with_input, args=(servers, task.socket), daemon=True).start()

    def tell(**message: object) -> None:
        print(json.dumps(message), file=messages, flush=True)

    make = made or partial(made_of, say=lambda text: tell(said=text))
    try:
        server = _server(make(task), task.socket, tell)
    except GrlsError as error:
        tell(error=error.text)
        raise SystemExit(1) from error
    servers.append(server)
    server.run()


def _server(made: Made, socket: str, tell: Callable[..., object]) -> uvicorn.Server:
    log_lines()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the front process says what happens
    made.app.add_middleware(MarkAccepted)
    routes = [path for path in (getattr(route, "path", None) for route in made.app.routes) if path]
    versions = [version.model_dump() for version in made.versions]
    config = uvicorn.Config(
        made.app,
        uds=socket,
        http="h11",
        log_config=None,
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_LONG,
        timeout_graceful_shutdown=1,
    )
    return _Server(config, lambda: tell(routes=routes, versions=versions))


def _end_with_input(servers: list[uvicorn.Server], socket: str) -> None:
    """Wait for the end of standard input, and end the process: at once while it still loads."""
    while os.read(0, 4096):
        pass
    if servers:  # a front process that was killed has left the folder; one that lives is about to remove it
        shutil.rmtree(Path(socket).parent, ignore_errors=True)
    for server in servers:
        server.should_exit = True
    if servers:
        time.sleep(_GRACE)
    os._exit(1)


if __name__ == "__main__":
    serve_task()
