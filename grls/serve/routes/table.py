"""The addresses of the server, with their methods, responses and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import Depends, FastAPI
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from grls.serve.answers.bodies import AnsweredBody
from grls.serve.bodies import ExplainedBody, FoundBody, HealthBody, PassageBody, VersionBody
from grls.serve.bodies_retrievers import RetrieversBody
from grls.serve.bodies_trace import TracedBody
from grls.serve.problems import only_known_parameters
from grls.serve.routes.admin import reload_version
from grls.serve.routes.answer import answer_question
from grls.serve.routes.explain import answer_explain
from grls.serve.routes.page import show_page, show_page_file
from grls.serve.routes.passages import show_passage
from grls.serve.routes.retrievers import show_retrievers
from grls.serve.routes.search import answer_search
from grls.serve.routes.state import show_docs, show_health, show_metrics, show_ready
from grls.serve.routes.stream import EVENTS, answer_stream
from grls.serve.routes.trace import answer_trace
from grls.serve.schema import problems

_ASKED = (400, 401, 404, 408, 413, 422, 429, 503)
"""Errors of a request to a retriever."""


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
    _post(
        app,
        "/admin/reload",
        reload_version,
        400,
        401,
        403,
        404,
        408,
        413,
        422,
        503,
        response_model=VersionBody,
    )
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
