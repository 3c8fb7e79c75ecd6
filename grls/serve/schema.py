"""The OpenAPI description of the server, with its limits and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from grls.data.where import MOST
from grls.serve.bodies import ProblemBody
from grls.serve.options import RequestLimits
from grls.serve.problems import MEDIA

_REFERENCE = {"$ref": "#/components/schemas/ProblemBody"}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of an address, for its description."""
    content = {MEDIA: {"schema": _REFERENCE}}
    return {status: {"description": "An error.", "content": content} for status in statuses}


def described(app: FastAPI, limits: RequestLimits, tokens: int | None = None) -> Callable[[], dict[str, Any]]:
    """A function that describes an application, with the limits of its requests.

    Args:
        app: The application.
        limits: The limits of requests.
        tokens: Largest length limit of an answer.
    """

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes
            )
            schemas = described.setdefault("components", {}).setdefault("schemas", {})
            schemas["ProblemBody"] = ProblemBody.model_json_schema(
                ref_template="#/components/schemas/{model}", mode="serialization"
            )
            schemas |= schemas["ProblemBody"].pop("$defs", {})
            fields = {name: schema.get("properties", {}) for name, schema in schemas.items()}
            text, several = fields["SearchBody"]["query"]["anyOf"]
            several |= {"minItems": 1, "maxItems": limits.queries}
            asking = ("StreamBody", "ExplainBody", "AnswerBody", "TraceBody")
            for query in (text, several["items"], *(fields[name]["query"] for name in asking)):
                query["maxLength"] = limits.characters
            fields["SearchBody"]["k"]["maximum"] = limits.k
            fields["HopsBody"]["max"]["anyOf"][0]["maximum"] = limits.hops
            for name in ("TraceBody", "AnswerBody"):
                fields[name]["k"]["anyOf"][0]["maximum"] = limits.k
            for name in ("SearchBody", "StreamBody", "AnswerBody", "TraceBody"):
                fields[name]["where"]["anyOf"][0]["maxLength"] = MOST
            if tokens is not None:
                fields["AnswerBody"]["max_new_tokens"]["anyOf"][0]["maximum"] = tokens
            app.openapi_schema = described
        description: dict[str, Any] = app.openapi_schema
        return description

    return describe
