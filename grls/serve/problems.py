"""Errors as responses: ``application/problem+json`` (RFC 9457) with the expected values and the remedy.

Every error of grls has a status here. An unexpected error is logged, and its text is not sent.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from grls.errors import ConfigError, DataError, GrlsError, in_request, in_shell, out_of_memory, worded
from grls.serve.bodies import AnswerBody, ExplainBody, FaultBody, HopsBody, SearchBody, StreamBody, TraceBody
from grls.serve.served import BusyError, ChangedError, VersionError
from grls.serve.worker import LateError, QueueFullError, ShutdownError

log = logging.getLogger(__name__)


MEDIA = "application/problem+json"
GONE = 499
"""The status, in log and metrics, of a request whose client did not wait for the response."""
_BODIES = (SearchBody, StreamBody, TraceBody, ExplainBody, AnswerBody)
_FIELDS = {f"hops.{name}" for name in HopsBody.model_fields}.union(*(body.model_fields for body in _BODIES))
_EXPLAINED = {"case.gold": "gold"}
"""Options of ``grls explain`` -> the fields of its requests."""


class RefusalError(GrlsError):
    """A request that is refused, with the status of the response, its detail, and further headers."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None):
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})


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


def status_of(error: GrlsError) -> tuple[int, dict[str, str]]:
    if isinstance(error, RefusalError):
        return error.status, error.headers
    if isinstance(error, QueueFullError):
        return 503, {"Retry-After": str(error.seconds)}
    if isinstance(error, LateError):
        return 429, {"Retry-After": str(error.seconds)}
    if isinstance(error, ShutdownError | BusyError):
        return 503, {"Retry-After": "5"}
    if isinstance(error, ChangedError):
        return 503, {}
    if isinstance(error, ConfigError | DataError | VersionError):
        return 422, {}
    return 500, {}


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(GrlsError, _any)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(Exception, _any)


def problem_for(error: Exception, field_name: Callable[[str], str] = str) -> Response:
    """The response for an error of any kind; unexpected errors are logged. ``field_name`` names a field."""
    if isinstance(error, GrlsError):
        status, headers = status_of(error)
        if status != 500:
            return problem(status, _text(error, field_name), headers)
    if out_of_memory(error):
        log.error("there is not enough memory for a request")
        return problem(503, "there is not enough memory; ask for less, or try again.", {"Retry-After": "5"})
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
    if not operators or isinstance(error, RefusalError | VersionError):  # these say who sets an option
        return text
    return f"{text} Only the operator of the server can set {', '.join(dict.fromkeys(operators))}."


async def only_known_parameters(request: Request) -> None:
    """Refuse (RequestValidationError) unknown parameters: a misspelled parameter would be ignored."""
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
        index = broken["loc"][-1]
        position = f" (at character {index + 1})" if isinstance(index, int) else ""
        return problem(400, f"the body is no JSON{position}; send a JSON object, as /docs describes it.")
    part = faults[0]["loc"][0]
    document: Schema = request.app.openapi()
    methods = document["paths"][request.scope["route"].path_format]
    described = methods["get" if request.method == "HEAD" else request.method.lower()]
    if part == "body":
        content = described.get("requestBody", {}).get("content", {})
        schema: Schema = content.get("application/json", {}).get("schema", {})
    else:
        parameters = described.get("parameters", ())
        schema = {"properties": {row["name"]: row["schema"] for row in parameters if row["in"] == part}}
    plain = plain_faults([fault | {"loc": fault["loc"][1:]} for fault in faults], schema, document)
    errors = [fault.model_dump() for fault in plain]
    name = "request" if part == "body" else f"{part} of the address"
    return problem(422, f"the {name} cannot be used: {listed(plain)}. /docs describes it.", errors=errors)


async def _plain(request: Request, error: HTTPException) -> Response:
    detail = "the request cannot be read; /docs describes the requests."
    if error.status_code == 404:
        detail = "there is no such address; the addresses are listed at /docs."
    if error.status_code == 405:
        takes = (error.headers or {}).get("Allow", "another method")
        detail = f"the address takes {takes}, not {request.method}; /docs describes the requests."
    return problem(error.status_code, detail, error.headers)


async def _any(request: Request, error: Exception) -> Response:
    return problem_for(error)


Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""
_MOST, _LONGEST = 10, 200
"""Faults of a request that are listed, and characters of the name of a field."""
_SHOWN = 40
"""Characters of a value that are shown."""
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}
_BOUNDS = (("imum", ""), ("Length", "characters"), ("Items", "items"))
"""Ends of the names of bounds in a schema, and the counted things."""


def plain_faults(errors: Sequence[Mapping[str, Any]], schema: Schema, document: Schema) -> list[FaultBody]:
    """The first faults that pydantic found, at most one for each field, in order.

    ``loc`` of an error begins at the request, which has the schema; its references are in the document.
    """
    problems: dict[tuple[str, ...], str] = {}
    for error in errors:
        path, field = list[str](), schema
        unknown = error["type"] == "extra_forbidden"
        for part in error["loc"][:-1] if unknown else error["loc"]:
            inner = _inner(part, field, document)
            if inner is not None:  # else the part is the tag of a union
                path.append(str(part))
                field = inner
        if unknown:
            path.append(str(error["loc"][-1]))
        problems.setdefault(tuple(path), _problem(error, field, document))
    parents = {path[:size] for path in problems for size in range(len(path))}  # an item's fault says more
    faults = [
        (".".join(part if part.strip() else repr(part) for part in path) or "body", text)
        for path, text in problems.items()
        if path not in parents
    ]
    return [
        FaultBody(field=name[:_LONGEST].encode("utf-8", "replace").decode(), problem=text)
        for name, text in faults[:_MOST]
    ]


def listed(faults: Sequence[FaultBody]) -> str:
    return "; ".join(f"{fault.field}: {fault.problem}" for fault in faults[:3])


def _inner(part: str | int, schema: Schema, document: Schema) -> Schema | None:
    for option in _alternatives(schema, document):
        fields = option.get("properties", {})
        inner: Schema | None = option.get("items") if isinstance(part, int) else fields.get(part)
        if inner is not None:
            return inner
    return None


def _alternatives(schema: Schema, document: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _alternatives(target, document)
    elif "anyOf" in schema:
        for option in schema["anyOf"]:
            yield from _alternatives(option, document)
    else:
        yield schema


def _problem(error: Mapping[str, Any], schema: Schema, document: Schema) -> str:
    if error["type"] == "extra_forbidden":
        name = str(error["loc"][-1]).lower()
        options = _alternatives(schema, document)
        known = [field for option in options for field in option.get("properties", {})]
        parts = re.split(r"[\W_]+", name)  # top_k: k
        near = [field for field in known if field in parts] or get_close_matches(name, known)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        return f"there is no such field{meant}; there are {', '.join(known) or 'none'}"
    expected = ", or ".join(_kind(option, document) for option in _alternatives(schema, document))
    if error["type"] == "missing":
        return f"it is missing; expected {expected}"
    if error["type"] == "string_unicode":
        return f"expected {expected}, got characters that are not Unicode (half of a surrogate pair)"
    return f"expected {expected}, got {_got(error.get('input'))}"


def _kind(schema: Schema, document: Schema) -> str:
    """The values of a schema in words, with their bounds."""
    if "enum" in schema or "const" in schema:
        return f"one of {', '.join(schema.get('enum', [schema.get('const')]))}"
    bounds = ""
    for name, unit in _BOUNDS:
        least, most = schema.get(f"min{name}"), schema.get(f"max{name}")
        ends = [f"{end:,.12g}" for end in (least, most) if end is not None]
        if ends:
            only = "" if len(ends) == 2 else "at least " if most is None else "at most "
            bounds = f" ({only}{' to '.join(ends)} {unit.rstrip('s' if ends == ['1'] else '')}".rstrip() + ")"
    kind = schema.get("type")
    if kind == "object":
        return f"an object with the fields {', '.join(schema.get('properties', {}))}"
    if kind == "array":
        items = ", or ".join(_kind(option, document) for option in _alternatives(schema["items"], document))
        return f"a list{bounds}, each {items}"
    return f"{_KINDS.get(str(kind), 'a text')}{bounds}"


def _got(value: object) -> str:
    """The value that was sent; of a long value its size."""
    if isinstance(value, bytes):
        return "a body that is not sent as JSON (header content-type: application/json)"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value == "":
        return "an empty text"
    shown = json.dumps(value, default=str)
    if len(shown) <= _SHOWN:
        return shown
    return f"a text of {len(value):,} characters" if isinstance(value, str) else f"{shown[:_SHOWN]}…"
