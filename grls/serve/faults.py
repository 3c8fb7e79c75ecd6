"""Faults of a request in plain words: the field, what it takes, and what came.

What a field takes is read from the JSON schema of the request, so it is named with the limits of the server.
The module does not know how requests arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""
_MOST, _LONGEST = 10, 200
"""Faults of a request that are listed, and characters of the name of a field."""
_SHOWN = 40
"""Characters of a value that are shown."""
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}
_BOUNDS = (("imum", ""), ("Length", "characters"), ("Items", "items"))
"""Ends of the names of bounds in a schema, and what they count."""


class Fault(NamedTuple):
    """A fault of a request.

    Attributes:
        field: The dotted name of the field.
        problem: What it takes, and what came.
    """

    field: str
    problem: str


def plain_faults(errors: Sequence[Mapping[str, Any]], schema: Schema, document: Schema) -> list[Fault]:
    """The faults that pydantic found, one for each field, in order; of many the first ones.

    Args:
        errors: The errors of pydantic; ``loc`` begins at the request.
        schema: The schema of the request.
        document: The document that its references are about.
    """
    problems: dict[tuple[str, ...], str] = {}
    for error in errors:
        path, here = list[str](), schema
        unknown = error["type"] == "extra_forbidden"
        for part in error["loc"][:-1] if unknown else error["loc"]:
            inner = _inner(part, here, document)
            if inner is not None:  # else the part is the tag of a union
                path.append(str(part))
                here = inner
        if unknown:
            path.append(str(error["loc"][-1]))
        problems.setdefault(tuple(path), _problem(error, here, document))
    whole = {path[:size] for path in problems for size in range(len(path))}  # the fault of an item says more
    faults = [
        (".".join(part if part.strip() else repr(part) for part in path) or "body", text)
        for path, text in problems.items()
        if path not in whole
    ]
    return [Fault(name[:_LONGEST].encode("utf-8", "replace").decode(), text) for name, text in faults[:_MOST]]


def listed(faults: Sequence[Fault]) -> str:
    """The first faults in a sentence."""
    return "; ".join(f"{fault.field}: {fault.problem}" for fault in faults[:3])


def _inner(part: str | int, schema: Schema, document: Schema) -> Schema | None:
    """The schema of a field or of an item; None: there is none."""
    for each in _alternatives(schema, document):
        fields = each.get("properties", {})
        inner: Schema | None = each.get("items") if isinstance(part, int) else fields.get(part)
        if inner is not None:
            return inner
    return None


def _alternatives(schema: Schema, document: Schema) -> Iterator[Schema]:
    """The schemas of which a value has to meet one, references resolved."""
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _alternatives(target, document)
    elif "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _alternatives(each, document)
    else:
        yield schema


def _problem(error: Mapping[str, Any], schema: Schema, document: Schema) -> str:
    if error["type"] == "extra_forbidden":
        name = str(error["loc"][-1]).lower()
        known = [field for each in _alternatives(schema, document) for field in each.get("properties", {})]
        parts = re.split(r"[\W_]+", name)  # top_k: k
        near = [field for field in known if field in parts] or get_close_matches(name, known)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        return f"there is no such field{meant}; there are {', '.join(known) or 'none'}"
    expected = ", or ".join(_kind(each, document) for each in _alternatives(schema, document))
    if error["type"] == "missing":
        return f"it is missing; expected {expected}"
    if error["type"] == "string_unicode":
        return f"expected {expected}, got characters that are not Unicode (half of a surrogate pair)"
    return f"expected {expected}, got {_got(error.get('input'))}"


def _kind(schema: Schema, document: Schema) -> str:
    """What a value may be, in words, with its bounds."""
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
        items = ", or ".join(_kind(each, document) for each in _alternatives(schema["items"], document))
        return f"a list{bounds}, each {items}"
    return f"{_KINDS.get(str(kind), 'a text')}{bounds}"


def _got(value: object) -> str:
    """What came, without its content where it is long."""
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
