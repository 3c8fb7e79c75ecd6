"""``GET /health``, ``/ready``, ``/metrics`` and ``/docs``."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from grls.serve.bodies import HealthBody, VersionBody
from grls.serve.metrics import CONTENT
from grls.serve.page.docs import docs_page
from grls.serve.problems import RefusalError
from grls.serve.served import Version
from grls.serve.serving import Serving, serving


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
