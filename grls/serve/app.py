"""The application: addresses, errors, and the end of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import HTMLResponse, Response, StreamingResponse

import grls
from grls.data.where import MOST
from grls.serve.bodies import (
    AnsweredBody,
    ExplainedBody,
    FoundBody,
    HealthBody,
    PassageBody,
    ProblemBody,
    ReloadBody,
    RetrieversBody,
    TracedBody,
    VersionBody,
)
from grls.serve.guards import CONTENT, guards
from grls.serve.options import RequestLimits
from grls.serve.page.files import HEADERS, INDEX, docs_page, page_files
from grls.serve.problems import MEDIA, RefusalError, add_handlers, only_known_parameters
from grls.serve.routes import (
    EVENTS,
    answer_explain,
    answer_question,
    answer_search,
    answer_stream,
    answer_trace,
    show_passage,
    show_retrievers,
)
from grls.serve.served import Version
from grls.serve.serving import Serving, serving


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
    serving.metrics.waiting = serving.waiting
    add_addresses(app)
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


_OF_RETRIEVER = (400, 401, 404, 408, 413, 422, 429, 503)
"""Errors of a request to a retriever."""
_OF_ADMIN = (400, 401, 403, 404, 408, 413, 422, 503)
"""Errors of a request of the administrator."""


class _AnyId(PathConvertor):
    """The rest of an address, slashes and line breaks included."""

    regex = r"[\s\S]*"


register_url_convertor("any_id", _AnyId())


def add_addresses(app: FastAPI) -> None:
    post = partial(_post, app)
    post("/v1/search", answer_search, _OF_RETRIEVER, response_model=FoundBody)
    post("/v1/explain", answer_explain, _OF_RETRIEVER, response_model=ExplainedBody)
    post("/v1/answer", answer_question, _OF_RETRIEVER, response_model=AnsweredBody)
    post("/v1/trace", answer_trace, _OF_RETRIEVER, response_model=TracedBody)
    events = {200: {"description": "Events hop, end and problem.", "content": {EVENTS: {}}}}
    post("/v1/stream", answer_stream, _OF_RETRIEVER, responses=events, response_class=StreamingResponse)
    post("/admin/reload", reload_version, _OF_ADMIN, response_model=VersionBody)
    checked: dict[str, Any] = {"dependencies": [Depends(only_known_parameters)]}
    passage = {"response_model": PassageBody, "responses": problems(401, 404, 422, 503)}
    _get(app, "/v1/passages/{passage:any_id}", show_passage, **checked, **passage)
    retrievers = {"response_model": RetrieversBody, "responses": problems(401, 422, 503)}
    _get(app, "/v1/retrievers", show_retrievers, **checked, **retrievers)
    for path, state in (("/health", show_health), ("/ready", show_ready)):
        _get(app, path, state, response_model=HealthBody, responses=problems(503))
    hidden: dict[str, Any] = {"response_class": Response, "include_in_schema": False}
    for path, show in (
        ("/metrics", show_metrics), ("/docs", show_docs), ("/", show_page), ("/page/{name}", show_page)
    ):  # fmt: skip
        _get(app, path, show, **hidden)


def _post(
    app: FastAPI, path: str, handler: Callable[..., Any], errors: Sequence[int], **described: Any
) -> None:
    described["responses"] = described.get("responses", {}) | problems(*errors)
    checks = [Depends(only_known_parameters)]
    app.add_api_route(path, handler, methods=["POST"], dependencies=checks, **described)


def _get(app: FastAPI, path: str, handler: Callable[..., Any], **described: Any) -> None:
    """Add an address for GET, and for HEAD, which has the same answer without its body."""
    app.add_api_route(path, handler, methods=["GET"], **described)
    app.add_api_route(path, handler, methods=["HEAD"], **described | {"include_in_schema": False})


async def reload_version(request: Request, body: ReloadBody) -> VersionBody:
    """Load the folder of a retriever again; a broken folder is refused, and the old version goes on."""
    state = serving(request)
    served = state.find(body.retriever)
    return version_body(await run_in_threadpool(state.reload, served))


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


async def show_health(request: Request) -> HealthBody:
    """Whether the server works."""
    state = serving(request)
    if not state.alive:
        text = "the thread of a retriever or of the language model has ended; start the server again."
        raise RefusalError(503, text, {"Retry-After": "5"})
    return _state(state)


async def show_ready(request: Request) -> HealthBody:
    """Whether the server takes requests."""
    state = serving(request)
    if state.ending:
        raise RefusalError(503, "the server is shutting down; use another one.", {"Retry-After": "5"})
    state.check_loaded()
    return _state(state)


async def show_metrics(request: Request) -> Response:
    """The counts, for Prometheus."""
    return Response(serving(request).metrics.text(), media_type=CONTENT)


async def show_docs(request: Request) -> HTMLResponse:
    """The addresses of the server."""
    return HTMLResponse(docs_page(request.app.openapi()))


def _state(state: Serving) -> HealthBody:
    versions = [version_body(served.version) for served in state.retrievers.values()]
    status: Any = "ending" if state.ending else "starting" if state.loading else "ok"
    return HealthBody(status=status, retrievers=versions)


def version_body(version: Version) -> VersionBody:
    passages = len(version.searcher.corpus)
    return VersionBody(retriever=version.name, version=version.number, passages=passages)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    return {status: {"description": "An error.", "content": content} for status in statuses}


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
