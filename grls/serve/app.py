"""The application: addresses, errors, and the end of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import grls
from grls.serve.bodies import HealthBody
from grls.serve.guards import CONTENT, guards
from grls.serve.page.files import HEADERS, INDEX, page_files
from grls.serve.problems import add_handlers, problems
from grls.serve.routes import router as v1
from grls.serve.routes import version_body
from grls.serve.serving import Serving, serving
from grls.serve.worker import RefusalError, busy


def create_app(serving: Serving, hosts: frozenset[str] | None = None) -> FastAPI:
    """The application of a server, with its middleware; the threads of its retrievers end with it.

    ``hosts``: the host names that requests may have; None: any.
    """
    options = serving.options
    middleware = guards(options, hosts, serving.metrics, serving.admin)
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
    if options.tools:
        from grls.serve.tools.server import tool_routes, tool_server  # late: they need an extra

        server = tool_server(serving)
        app.router.routes += tool_routes(server)
        app.state.tools = server.session_manager
    for addresses in (v1, router, pages):
        app.include_router(addresses)
    add_handlers(app)
    return app


@asynccontextmanager
async def _ending(app: FastAPI) -> AsyncIterator[None]:
    tools = getattr(app.state, "tools", None)
    async with nullcontext() if tools is None else tools.run():
        yield
    await run_in_threadpool(app.state.serving.close)


router, pages = APIRouter(responses=problems(503)), APIRouter(include_in_schema=False)


@pages.get("/")
@pages.get("/page/{name}")
async def show_page(request: Request) -> Response:
    """A file of the page, at / its first; status 304 where the browser has it already."""
    file = page_files().get(request.path_params.get("name", INDEX))
    if file is None:
        raise RefusalError(404, "the page has no file of this name; the page is at /.")
    headers = HEADERS | {"ETag": file.tag}
    known = request.headers.get("if-none-match", "").split(",")
    if any(tag.strip().removeprefix("W/") in (file.tag, "*") for tag in known):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media)


@router.get("/health", response_model=HealthBody)
async def show_health(request: Request) -> HealthBody:
    """Whether the server works."""
    return _state(serving(request))


@router.get("/ready", response_model=HealthBody)
async def show_ready(request: Request) -> HealthBody:
    """Whether the server takes requests."""
    state = serving(request)
    if state.ending:
        raise busy("the server is shutting down; use another one.")
    state.check_loaded()
    return _state(state)


@pages.get("/metrics")
async def show_metrics(request: Request) -> Response:
    """The counts, for Prometheus."""
    return Response(serving(request).metrics.text(), media_type=CONTENT)


def _state(state: Serving) -> HealthBody:
    versions = [version_body(served.version) for served in state.retrievers.values()]
    status: Any = "ending" if state.ending else "starting" if state.loading else "ok"
    return HealthBody(status=status, retrievers=versions)
