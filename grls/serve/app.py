"""The application: addresses, middleware, errors, and the end of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

import grls
from grls.serve.access import Gate, read_keys
from grls.serve.bodylimit import BodyLimit
from grls.serve.hosts import HostCheck
from grls.serve.options import OPEN_ACCESS, AccessOptions
from grls.serve.problems import add_handlers
from grls.serve.request_log import RequestLog
from grls.serve.routes.table import add_addresses
from grls.serve.schema import described
from grls.serve.serving import Serving


def create_app(
    serving: Serving,
    access: AccessOptions = OPEN_ACCESS,
    hosts: frozenset[str] | None = None,
    tools: bool = False,
) -> FastAPI:
    """The application of a server.

    Args:
        serving: Its retrievers and limits; its threads end with the application.
        access: Who may use it.
        hosts: The host names that requests may have (:func:`grls.serve.hosts.accepted_hosts`); None: any.
        tools: Offer the tools of an agent at /mcp.

    Raises:
        DataError: A file of keys cannot be used.
    """
    limits = serving.limits
    app = FastAPI(
        title="grls",
        version=grls.__version__,
        summary="Retrieval hop by hop.",
        docs_url=None,
        redoc_url=None,
        lifespan=_ending,
    )
    app.state.serving = serving
    if tools:
        _add_tools(app)
    serving.metrics.watch_queues(serving.queues, serving.questions)
    add_addresses(app)
    add_handlers(app)
    app.openapi = described(app, limits, _tokens(serving))  # type: ignore[method-assign, unused-ignore]
    app.add_middleware(BodyLimit, most=limits.body, seconds=limits.seconds)
    # Read here: an application makes its middleware when it starts, too late for an error.
    keys = None if access.keys is None else read_keys(access.keys)
    app.add_middleware(Gate, keys=keys, rate=access.rate)
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    if hosts is not None:
        app.add_middleware(HostCheck, hosts=hosts)
    app.add_middleware(RequestLog, metrics=serving.metrics)
    return app


def _tokens(serving: Serving) -> int | None:
    """Largest length limit of an answer; None: there are no answers."""
    return None if serving.answering is None else serving.answering.options.tokens


def _add_tools(app: FastAPI) -> None:
    from grls.serve.tools.server import tool_routes, tool_server  # late: they need an extra

    server = tool_server(app.state.serving)
    app.router.routes += tool_routes(server)
    app.state.tools = server.session_manager


@asynccontextmanager
async def _ending(app: FastAPI) -> AsyncIterator[None]:
    """Run the tools with the application, and end the threads of the retrievers with it."""
    tools = getattr(app.state, "tools", None)
    async with nullcontext() if tools is None else tools.run():
        yield
    await run_in_threadpool(app.state.serving.close)
