"""Errors as responses: ``application/problem+json`` (RFC 9457) with what was expected and the remedy.

Every error of grls has a status here. An unexpected error is logged, and its text is not sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from grls.errors import ConfigError, DataError, GrlsError, in_request, in_shell, out_of_memory, worded
from grls.serve.answers.bodies import AnswerBody
from grls.serve.bodies import ExplainBody, HopsBody, SearchBody, StreamBody
from grls.serve.bodies_trace import TraceBody
from grls.serve.faults import Schema, listed, plain_faults
from grls.serve.served import BusyError, VersionError
from grls.serve.worker import QueueFullError, ShutdownError

log = logging.getLogger(__name__)

MEDIA = "application/problem+json"
GONE = 499
"""The status, in log and metrics, of a request whose client did not wait for the response."""
_REMEDIES = {
    404: "there is no such address; the addresses are listed at /docs.",
}
_BODIES = (SearchBody, StreamBody, TraceBody, ExplainBody, AnswerBody)
_FIELDS = {f"hops.{name}" for name in HopsBody.model_fields}.union(*(body.model_fields for body in _BODIES))
_EXPLAINED = {"case.gold": "gold", "case.evidence": "evidence"}
"""Options of ``grls explain`` -> the fields of its requests."""


class RefusalError(GrlsError):
    """A request that is refused.

    Args:
        status: The status of the response.
        detail: What was expected, and the remedy.
        headers: Further headers.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None):
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})


def problem(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, str]] = (),
) -> Response:
    """The response for an error."""
    title = "Client Closed Request" if status == GONE else HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    body |= {"detail": detail, "errors": list(errors)}
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA)


def status_of(error: GrlsError) -> tuple[int, dict[str, str]]:
    """The status and further headers for an error of grls."""
    if isinstance(error, RefusalError):
        return error.status, error.headers
    if isinstance(error, QueueFullError):
        return 503, {"Retry-After": str(error.seconds)}
    if isinstance(error, ShutdownError | BusyError):
        return 503, {"Retry-After": "5"}
    if isinstance(error, ConfigError | DataError | VersionError):
        return 422, {}
    return 500, {}


def add_handlers(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""
    app.add_exception_handler(GrlsError, _any)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Exception, _any)


def problem_for(error: Exception, called: Callable[[str], str] = str) -> Response:
    """The response for an error of any kind; unexpected ones are logged.

    Args:
        error: The error.
        called: Names a field as the client has it.
    """
    if isinstance(error, GrlsError):
        status, headers = status_of(error)
        if status != 500:
            return problem(status, _text(error, called), headers)
    if out_of_memory(error):
        log.error("there is not enough memory for a request")
        return problem(503, "there is not enough memory; ask for less, or try again.", {"Retry-After": "5"})
    log.error("a request failed", exc_info=error)
    return problem(500, "the server failed at this request; its log says why.")


def _text(error: GrlsError, called: Callable[[str], str]) -> str:
    """The text of an error with fields as clients have them; an option without a field is the operator's."""
    beyond: list[str] = []

    def field(option: str, values: Sequence[Any]) -> str:
        name = _EXPLAINED.get(option, option)
        if name in _FIELDS:
            return in_request(called(name), values)
        beyond.append(in_shell(option, ()))
        return in_shell(option, values)

    text = worded(error.text, field)
    if not beyond or isinstance(error, RefusalError | VersionError):  # these say who sets an option
        return text
    return f"{text} Only the operator of the server can set {', '.join(dict.fromkeys(beyond))}."


async def only_known_parameters(request: Request) -> None:
    """Refuse parameters that an address does not have: a misspelled one would be ignored.

    Raises:
        RequestValidationError: There is one.
    """
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name)} for name in unknown]
        )


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    faults = error.errors()
    broken = next((fault for fault in faults if fault["type"] == "json_invalid"), None)
    if broken is not None:
        at = broken["loc"][-1]
        where = f" (at character {at + 1})" if isinstance(at, int) else ""
        return problem(400, f"the body is no JSON{where}; send a JSON object, as /docs describes it.")
    place = faults[0]["loc"][0]
    document, schema = _schema_of(request, place)
    within = [fault | {"loc": fault["loc"][1:]} for fault in faults]
    plain = plain_faults(within, schema, document)
    errors = [fault._asdict() for fault in plain]
    what = "request" if place == "body" else f"{place} of the address"
    return problem(422, f"the {what} cannot be used: {listed(plain)}. /docs describes it.", errors=errors)


def _schema_of(request: Request, place: str) -> tuple[Schema, Schema]:
    """The description of all requests, and in it the schema of this one's body, or of its query."""
    document: Schema = request.app.openapi()
    methods = document["paths"][request.scope["route"].path_format]
    described = methods["get" if request.method == "HEAD" else request.method.lower()]
    if place != "body":
        parameters = described.get("parameters", ())
        return document, {
            "properties": {one["name"]: one["schema"] for one in parameters if one["in"] == place}
        }
    content = described.get("requestBody", {}).get("content", {})
    return document, content.get("application/json", {}).get("schema", {})


async def _plain(request: Request, error: HTTPException) -> Response:
    detail = _REMEDIES.get(error.status_code, "the request cannot be read; /docs describes the requests.")
    if error.status_code == 405:
        takes = (error.headers or {}).get("Allow", "another method")
        detail = f"the address takes {takes}, not {request.method}; /docs describes the requests."
    return problem(error.status_code, detail, error.headers)


async def _any(request: Request, error: Exception) -> Response:
    return problem_for(error)
