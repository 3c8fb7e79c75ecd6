"""The addresses of the server, with their methods, responses and errors; its page, its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import HTMLResponse, Response, StreamingResponse

from grls.serve.bodies import (
    AnsweredBody,
    ExplainedBody,
    FoundBody,
    HealthBody,
    PassageBody,
    ReloadBody,
    RetrieversBody,
    TracedBody,
    VersionBody,
)
from grls.serve.guards import check_admin
from grls.serve.metrics import CONTENT
from grls.serve.page.files import HEADERS, INDEX, docs_page, page_files
from grls.serve.problems import RefusalError, only_known_parameters
from grls.serve.routes.search import EVENTS, answer_search, answer_stream, show_passage, show_retrievers
from grls.serve.routes.trace import answer_explain, answer_question, answer_trace
from grls.serve.schema import problems
from grls.serve.served import Version
from grls.serve.serving import Serving, serving

_ASKED = (400, 401, 404, 408, 413, 422, 429, 503)
"""Errors of a request to a retriever."""
_OF_ADMIN = (400, 401, 403, 404, 408, 413, 422, 503)
"""Errors of a request of the administrator."""


class _AnyId(PathConvertor):
    """The rest of an address, slashes and line breaks included."""

    regex = r"[\s\S]*"


register_url_convertor("any_id", _AnyId())


def add_addresses(app: FastAPI) -> None:
    """Add all addresses to an application."""
    _post(app, "/v1/search", answer_search, *_ASKED, response_model=FoundBody)
    _post(app, "/v1/explain", answer_explain, *_ASKED, response_model=ExplainedBody)
    _post(app, "/v1/answer", answer_question, *_ASKED, response_model=AnsweredBody)
    _post(app, "/v1/trace", answer_trace, *_ASKED, response_model=TracedBody)
    streamed: dict[int | str, Any] = {
        200: {"description": "Events hop, end and problem.", "content": {EVENTS: {}}}
    }
    _post(app, "/v1/stream", answer_stream, *_ASKED, response_class=StreamingResponse, responses=streamed)
    _post(app, "/admin/reload", reload_version, *_OF_ADMIN, response_model=VersionBody)
    asked: dict[str, Any] = {"dependencies": [Depends(only_known_parameters)]}
    passage = {"response_model": PassageBody, "responses": problems(401, 404, 422, 429)}
    _get(app, "/v1/passages/{passage:any_id}", show_passage, **asked, **passage)
    retrievers = {"response_model": RetrieversBody, "responses": problems(401, 422, 429)}
    _get(app, "/v1/retrievers", show_retrievers, **asked, **retrievers)
    for path, state in (("/health", show_health), ("/ready", show_ready)):
        _get(app, path, state, response_model=HealthBody, responses=problems(503))
    hidden: dict[str, Any] = {"response_class": Response, "include_in_schema": False}
    for path, show in (
        ("/metrics", show_metrics), ("/docs", show_docs), ("/", show_page), ("/page/{name}", show_page_file)
    ):  # fmt: skip
        _get(app, path, show, **hidden)


def _post(
    app: FastAPI,
    path: str,
    handler: Callable[..., Any],
    *errors: int,
    responses: Mapping[int | str, dict[str, Any]] = MappingProxyType({}),
    **described: Any,
) -> None:
    app.add_api_route(
        path,
        handler,
        methods=["POST"],
        dependencies=[Depends(only_known_parameters)],
        responses={**responses, **problems(*errors)},
        **described,
    )


def _get(app: FastAPI, path: str, handler: Callable[..., Any], **described: Any) -> None:
    """Add an address that is read; HEAD has the same answer, of which no body is sent."""
    app.add_api_route(path, handler, methods=["GET"], **described)
    app.add_api_route(path, handler, methods=["HEAD"], **described | {"include_in_schema": False})


# ``POST /admin/reload``: a new version of a retriever takes over, without a pause.


async def reload_version(request: Request, body: ReloadBody) -> VersionBody:
    """Load the folder of a retriever again; a broken one is refused, and the old version goes on."""
    state = serving(request)
    check_admin(request, state.admin)
    served = state.find(body.retriever)
    return version_body(await run_in_threadpool(served.reload))


# ``GET /``: the page, and the files that it is made of.


async def show_page(request: Request) -> Response:
    """The page: a question, its hops, and the beam behind them."""
    return page_response(request, INDEX)


async def show_page_file(request: Request, name: str) -> Response:
    """A file of the page."""
    return page_response(request, name)


def page_response(request: Request, name: str) -> Response:
    """A file of the page, or that the browser has it already.

    Raises:
        RefusalError: There is no such file.
    """
    file = page_files().get(name)
    if file is None:
        raise RefusalError(404, "the page has no file of this name; the page is at /.")
    headers = HEADERS | {"ETag": file.tag}
    known = request.headers.get("if-none-match", "").split(",")
    if any(tag.strip().removeprefix("W/") in (file.tag, "*") for tag in known):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media)


# ``GET /health``, ``/ready``, ``/metrics`` and ``/docs``.


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
    return _state(state)


async def show_metrics(request: Request) -> Response:
    """The counts, for Prometheus."""
    return Response(serving(request).metrics.text(), media_type=CONTENT)


async def show_docs(request: Request) -> HTMLResponse:
    """The addresses of the server."""
    return HTMLResponse(docs_page(request.app.openapi()))


def _state(state: Serving) -> HealthBody:
    versions = [version_body(one.version) for one in state.retrievers.values()]
    return HealthBody(status="ending" if state.ending else "ok", retrievers=versions)


def version_body(version: Version) -> VersionBody:
    """A version, as it is sent."""
    passages = len(version.searcher.corpus)
    return VersionBody(retriever=version.name, version=version.number, passages=passages)
