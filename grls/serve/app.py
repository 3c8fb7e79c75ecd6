"""The application: addresses, errors, and the end of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

import grls
from grls.serve.guards import guards
from grls.serve.options import OPEN_ACCESS, AccessOptions
from grls.serve.problems import add_handlers
from grls.serve.routes.table import add_addresses
from grls.serve.schema import described
from grls.serve.serving import Serving


def create_app(
    serving: Serving,
    access: AccessOptions = OPEN_ACCESS,
    hosts: frozenset[str] | None = None,
    tools: bool = False,
) -> FastAPI:
    """The application of a server, with all that a request passes before.

    Args:
        serving: Its retrievers and limits; its threads end with the application.
        access: Who may use it.
        hosts: The host names that requests may have (:func:`grls.serve.guards.accepted_hosts`); None: any.
        tools: Offer the tools of an agent at /mcp.

    Raises:
        DataError: A file of keys cannot be used.
    """
    return plain_app(serving, tools, guards(serving.limits, access, hosts, serving.metrics.requests))


def plain_app(serving: Serving, tools: bool = False, middleware: Sequence[Middleware] = ()) -> FastAPI:
    """The application of a server.

    Args:
        serving: Its retrievers and limits; its threads end with the application.
        tools: Offer the tools of an agent at /mcp.
        middleware: What a request passes before.
    """
    app = FastAPI(
        title="grls",
        version=grls.__version__,
        summary="Retrieval hop by hop.",
        docs_url=None,
        redoc_url=None,
        lifespan=_ending,
        middleware=middleware,
    )
    app.state.serving = serving
    if tools:
        from grls.serve.tools.server import tool_routes, tool_server  # late: they need an extra

        server = tool_server(serving)
        app.router.routes += tool_routes(server)
        app.state.tools = server.session_manager
    serving.metrics.watch_queues(serving.queues, serving.questions)
    add_addresses(app)
    add_handlers(app)
    tokens = None if serving.answering is None else serving.answering.options.tokens
    app.openapi = described(app, serving.limits, tokens)  # type: ignore[method-assign, unused-ignore]
    return app


@asynccontextmanager
async def _ending(app: FastAPI) -> AsyncIterator[None]:
    """Run the tools with the application, and end the threads of the retrievers with it."""
    tools = getattr(app.state, "tools", None)
    async with nullcontext() if tools is None else tools.run():
        yield
    await run_in_threadpool(app.state.serving.close)
