"""Errors as responses: ``application/problem+json`` (RFC 9457) with the expected values and the remedy.

Every error of grls has a status here. An unexpected error is logged, and its text is not sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from grls.errors import ConfigError, DataError, GrlsError, in_request, in_shell, out_of_memory, worded
from grls.io.arguments import short_repr
from grls.serve.bodies import (
    AnswerBody,
    ExplainBody,
    HopsBody,
    ProblemBody,
    SearchBody,
    StreamBody,
    TraceBody,
)
from grls.serve.worker import RefusalError, busy

log = logging.getLogger(__name__)


MEDIA = "application/problem+json"
GONE = 499
"""The status, in log and metrics, of a request whose client did not wait for the response."""
_BODIES = (SearchBody, StreamBody, TraceBody, ExplainBody, AnswerBody)
_FIELDS = {f"hops.{name}" for name in HopsBody.model_fields}.union(*(body.model_fields for body in _BODIES))
_EXPLAINED = {"case.gold": "gold"}
"""Options of ``grls explain`` -> the fields of its requests."""


def problem(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, str]] = (),
) -> Response:
    title = "Client Closed Request" if status == GONE else HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    body |= {"detail": detail, "errors": list(errors)}
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA)


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(GrlsError, _any)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Exception, _any)


def problem_for(error: Exception, field_name: Callable[[str], str] = str) -> Response:
    """The response for an error of any kind; unexpected errors are logged. ``field_name`` names a field."""
    if isinstance(error, RefusalError):
        return problem(error.status, _text(error, field_name), error.headers)
    if isinstance(error, ConfigError | DataError):
        return problem(422, _text(error, field_name))
    if out_of_memory(error):
        log.error("there is not enough memory for a request")
        return problem_for(busy("there is not enough memory; ask for less, or try again."))
    log.error("a request failed", exc_info=error)
    return problem(500, "the server failed at this request; its log says why.")


def _text(error: GrlsError, field_name: Callable[[str], str]) -> str:
    """The text of an error with fields as clients have them; an option without a field is the operator's."""
    operators: list[str] = []

    def field(option: str, values: Sequence[Any]) -> str:
        name = _EXPLAINED.get(option, option)
        if name in _FIELDS:
            return in_request(field_name(name), values)
        operators.append(in_shell(option, ()))
        return in_shell(option, values)

    text = worded(error.text, field)
    if not operators or isinstance(error, RefusalError):  # it says who sets an option
        return text
    return f"{text} Only the operator of the server can set {', '.join(dict.fromkeys(operators))}."


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of addresses, for their description."""
    content = {MEDIA: {"schema": ProblemBody.model_json_schema()}}
    return {status: {"description": "An error.", "content": content} for status in statuses}


async def only_known_parameters(request: Request) -> None:
    """Refuse (RequestValidationError) unknown parameters: a misspelled parameter would be ignored."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        told = {"type": "extra_forbidden", "msg": "there is no such parameter"}
        raise RequestValidationError([told | {"loc": ("query", name), "input": name} for name in unknown])


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    errors = error.errors()
    if any(fault["type"] == "json_invalid" for fault in errors):
        return problem(400, "the body is no JSON; send a JSON object, as /openapi.json describes it.")
    faults = faults_of([fault | {"loc": fault["loc"][1:]} for fault in errors])
    return problem(422, f"the request cannot be used: {listed(faults)}", errors=faults)


async def _plain(request: Request, error: HTTPException) -> Response:
    detail = "the request cannot be read; /openapi.json describes the requests."
    if error.status_code == 404:
        detail = "there is no such address; the addresses are listed at /openapi.json."
    if error.status_code == 405:
        takes = (error.headers or {}).get("Allow", "another method")
        detail = f"the address takes {takes}, not {request.method}."
    return problem(error.status_code, detail, error.headers)


async def _any(request: Request, error: Exception) -> Response:
    return problem_for(error)


_MOST, _LONGEST = 10, 200
"""Faults of a request that are listed, and characters of the name of a field."""


def faults_of(errors: Sequence[Mapping[str, Any]], fields: Collection[str] = _FIELDS) -> list[dict[str, str]]:
    """The first faults that pydantic found: the field, and its problem; ``fields`` are all names."""
    faults = []
    for error in errors[:_MOST]:
        unknown, (first, *rest) = error["type"] == "extra_forbidden", error["loc"] or ("body",)
        # Other parts are kinds that the field may have, such as list[str].
        inner = [part for part in rest if unknown or isinstance(part, int) or part in HopsBody.model_fields]
        field = ".".join(map(str, (first, *inner)))[:_LONGEST].encode("utf-8", "replace").decode()
        said = f"{error['msg']}, got {short_repr(error['input'])}"
        if isinstance(error["input"], bytes):
            said = "expected JSON (header content-type: application/json)"
        if unknown:
            near = get_close_matches(field, fields, 1)
            if near:
                said = f"there is no such field; did you mean {near[0]}?"
            elif 0 < len(fields) <= _MOST:
                said = f"there is no such field; there are {', '.join(sorted(fields))}"
        faults.append({"field": field, "problem": said})
    return faults


def listed(faults: Sequence[Mapping[str, str]]) -> str:
    text = "; ".join(f"{fault['field']}: {fault['problem']}" for fault in faults[:3])
    return text if text.endswith("?") else f"{text}."
