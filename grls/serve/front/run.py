"""Serves as a front process, until a signal, or until the worker process dies again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from grls.serve.front.counts import FrontCounts
from grls.serve.front.forward import Front
from grls.serve.front.supervisor import CHILD, Supervisor
from grls.serve.front.task import WorkerTask
from grls.serve.guards import accepted_hosts, guards, read_admin_token
from grls.serve.listening import address_of, check_port, listening, log_lines, until_signal
from grls.serve.options import ONE_PROCESS, WorkerProcessOptions
from grls.serve.problems import problem_for
from grls.serve.start import loading, named_folders, say


def run_front(
    task: WorkerTask,
    host: str,
    port: int,
    worker: WorkerProcessOptions = ONE_PROCESS,
    child: Sequence[str] = CHILD,
) -> None:
    """Start a worker process, and serve what it serves.

    Args:
        task: What the worker process serves.
        host: The address to listen at.
        port: The port.
        worker: How often it is started again.
        child: The command of the worker process.

    Raises:
        ConfigError: A name, an option or the port cannot be used, or the system has no Unix sockets.
        DataError: A file of keys or the token cannot be used.
        WorkerStartError: The worker process cannot serve its task, or died again and again.
    """
    server, supervisor = front_server(task, host, port, worker, child)
    log_lines()
    check_port(host, port)
    say(loading(task.folders, address_of(host, port)))
    supervisor.say = say
    with until_signal(server):
        asyncio.run(serve_front(server, supervisor))
    if supervisor.failure is not None:
        raise supervisor.failure


def front_server(
    task: WorkerTask,
    host: str,
    port: int,
    worker: WorkerProcessOptions = ONE_PROCESS,
    child: Sequence[str] = CHILD,
) -> tuple[uvicorn.Server, Supervisor]:
    """A server, and what keeps its worker process running; arguments and errors as in :func:`run_front`."""
    named_folders(task.folders)  # before a process is started for them
    read_admin_token(task.access.admin)
    counts = FrontCounts()
    supervisor = Supervisor(task, worker.starts, counts, child)
    server = listening(_app(task, supervisor, counts, host), host, port, task.limits.seconds)
    supervisor.on_failure = lambda: setattr(server, "should_exit", True)
    return server, supervisor


async def serve_front(server: uvicorn.Server, supervisor: Supervisor) -> None:
    """Start the worker process and serve, until the server is to end.

    Raises:
        WorkerStartError: The worker process cannot serve its task.
        ConfigError: The port was taken while it started.
    """
    await supervisor.start()
    try:
        await server.serve()
    finally:  # of a server that never began, too
        await supervisor.close()


def _app(task: WorkerTask, supervisor: Supervisor, counts: FrontCounts, host: str) -> ASGIApp:
    hosts = accepted_hosts(host, task.access.allowed_hosts)

    @asynccontextmanager
    async def ending(_: Starlette) -> AsyncIterator[None]:
        yield
        await supervisor.close()

    app = Starlette(
        middleware=guards(task.limits, task.access, hosts, counts.requests),
        exception_handlers={Exception: _failed},
        lifespan=ending,
    )
    app.router.default = Front(supervisor, task.limits, counts)
    return app


async def _failed(request: Request, error: Exception) -> Response:
    return problem_for(error)
