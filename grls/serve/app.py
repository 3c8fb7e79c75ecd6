"""The application: addresses, errors, and the end of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

import grls
from grls.data.where import MOST
from grls.serve.bodies import HealthBody, ProblemBody
from grls.serve.guards import CONTENT, guards
from grls.serve.options import RequestLimits
from grls.serve.page.files import HEADERS, INDEX, docs_page, page_files
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
    tokens = None if options.answer.model is None else options.answer.tokens
    app.openapi = partial(described, app, options.limits, tokens)  # type: ignore[method-assign, unused-ignore]
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


@pages.get("/docs")
async def show_docs(request: Request) -> HTMLResponse:
    """The addresses of the server."""
    return HTMLResponse(docs_page(request.app.openapi()))


def _state(state: Serving) -> HealthBody:
    versions = [version_body(served.version) for served in state.retrievers.values()]
    status: Any = "ending" if state.ending else "starting" if state.loading else "ok"
    return HealthBody(status=status, retrievers=versions)


def described(app: FastAPI, limits: RequestLimits, tokens: int | None) -> dict[str, Any]:
    """The description of an application, with the limits of requests and of an answer's tokens."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema(
            ref_template="#/components/schemas/{model}", mode="serialization"
        )
        schemas |= schemas["ProblemBody"].pop("$defs", {})
        fields = {name: schema.get("properties", {}) for name, schema in schemas.items()}
        text, texts = fields["SearchBody"]["query"]["anyOf"]
        texts |= {"minItems": 1, "maxItems": limits.queries}
        bodies = ("StreamBody", "ExplainBody", "AnswerBody", "TraceBody")
        for query in (text, texts["items"], *(fields[name]["query"] for name in bodies)):
            query["maxLength"] = limits.characters
        fields["SearchBody"]["k"]["maximum"] = limits.k
        fields["HopsBody"]["max"]["anyOf"][0]["maximum"] = limits.hops
        for name in ("TraceBody", "AnswerBody"):
            fields[name]["k"]["anyOf"][0]["maximum"] = limits.k
        for name in ("SearchBody", "StreamBody", "AnswerBody", "TraceBody"):
            fields[name]["where"]["anyOf"][0]["maxLength"] = MOST
        if tokens is not None:
            fields["AnswerBody"]["max_new_tokens"]["anyOf"][0]["maximum"] = tokens
        app.openapi_schema = document
    description: dict[str, Any] = app.openapi_schema
    return description
