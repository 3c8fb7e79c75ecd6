"""The addresses of the server, with their methods, responses and errors."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import HTMLResponse, Response, StreamingResponse

from grls.serve.answers.bodies import AnsweredBody
from grls.serve.bodies import ExplainedBody, FoundBody, HealthBody, PassageBody, VersionBody
from grls.serve.bodies_retrievers import RetrieversBody
from grls.serve.bodies_trace import TracedBody
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
    _add_retrieval(app)
    _add_state(app)
    app.add_api_route(
        "/admin/reload",
        reload_version,
        methods=["POST"],
        response_model=VersionBody,
        responses=problems(400, 401, 403, 404, 408, 413, 422, 503),
    )


def _add_retrieval(app: FastAPI) -> None:
    app.add_api_route(
        "/v1/search", answer_search, methods=["POST"], response_model=FoundBody, responses=problems(*_ASKED)
    )
    app.add_api_route(
        "/v1/explain",
        answer_explain,
        methods=["POST"],
        response_model=ExplainedBody,
        responses=problems(*_ASKED),
    )
    app.add_api_route(
        "/v1/answer",
        answer_question,
        methods=["POST"],
        response_model=AnsweredBody,
        responses=problems(*_ASKED),
    )
    app.add_api_route(
        "/v1/trace", answer_trace, methods=["POST"], response_model=TracedBody, responses=problems(*_ASKED)
    )
    streamed = {200: {"description": "Events hop, end and problem.", "content": {EVENTS: {}}}}
    app.add_api_route(
        "/v1/stream",
        answer_stream,
        methods=["POST"],
        response_class=StreamingResponse,
        responses=streamed | problems(*_ASKED),
    )
    app.add_api_route(
        "/v1/passages/{passage:any_id}",
        show_passage,
        methods=["GET"],
        response_model=PassageBody,
        responses=problems(401, 404, 422, 429),
    )


def _add_state(app: FastAPI) -> None:
    get = ["GET"]
    app.add_api_route(
        "/v1/retrievers",
        show_retrievers,
        methods=get,
        response_model=RetrieversBody,
        responses=problems(401, 429),
    )
    for path, handler in (("/health", show_health), ("/ready", show_ready)):
        app.add_api_route(path, handler, methods=get, response_model=HealthBody, responses=problems(503))
    app.add_api_route("/metrics", show_metrics, methods=get, response_class=Response, include_in_schema=False)
    read = ["GET", "HEAD"]
    for path, show in (("/", show_page), ("/page/{name}", show_page_file)):
        app.add_api_route(path, show, methods=read, response_class=Response, include_in_schema=False)
    app.add_api_route("/docs", show_docs, methods=get, response_class=HTMLResponse, include_in_schema=False)
