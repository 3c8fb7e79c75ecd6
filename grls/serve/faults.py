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

from grls.io.counts import counted

Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""
_MOST, _LONGEST = 10, 200
"""Faults of a request that are listed, and characters of the name of a field."""
_SHOWN = 40
"""Characters of a value that are shown."""
_PLURALS = {"string": "texts", "integer": "whole numbers", "number": "numbers", "boolean": "truth values"}


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
    placed: dict[tuple[str, ...], str] = {}
    for error in errors:
        place, problem = _placed(error, schema, document)
        placed.setdefault(place, problem)
    least = [place for place in placed if not any(_within(other, place) for other in placed)]
    return [Fault(_name(place), placed[place]) for place in least[:_MOST]]


def listed(faults: Sequence[Fault]) -> str:
    """The first faults in a sentence."""
    return "; ".join(f"{fault.field}: {fault.problem}" for fault in faults[:3])


def no_such(what: str, name: str, known: Sequence[str]) -> str:
    """That there is nothing of this name, with what there is, and what may be meant."""
    parts = re.split(r"[\W_]+", name.lower())  # top_k: k
    near = [other for other in known if other in parts] or get_close_matches(name.lower(), known)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    there = f"there are {', '.join(known)}" if known else "there are none"
    return f"there is no such {what}{meant}; {there}"


def _within(place: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether a place is a part of another one: of a list, the fault of an item says more."""
    return len(place) > len(other) and place[: len(other)] == other


def _name(place: tuple[str, ...]) -> str:
    name = ".".join(part if part.strip() else repr(part) for part in place) or "body"
    return name[:_LONGEST].encode("utf-8", "replace").decode("utf-8")


def _placed(error: Mapping[str, Any], schema: Schema, document: Schema) -> tuple[tuple[str, ...], str]:
    """The place of an error without the tags of unions, and its problem."""
    place: list[str] = []
    *parts, last = error["loc"] or ("",)
    unknown = error["type"] == "extra_forbidden"
    here = schema
    for part in parts if unknown or not error["loc"] else (*parts, last):
        inner = _inner(part, here, document)
        if inner is not None:
            place.append(str(part))
            here = inner
    if unknown:
        return (*place, str(last)), no_such("field", str(last), _fields(here, document))
    return tuple(place), _problem(error, here, document)


def _inner(part: str | int, schema: Schema, document: Schema) -> Schema | None:
    """The schema of a field or of an item; None: there is none, so the part is the tag of a union."""
    for one in _alternatives(schema, document):
        if isinstance(part, int) and "items" in one:
            item: Schema = one["items"]
            return item
        if part in one.get("properties", {}):
            field: Schema = one["properties"][part]
            return field
    return None


def _alternatives(schema: Schema, document: Schema) -> Iterator[Schema]:
    """The schemas of which a value has to meet one, references resolved."""
    if "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from _alternatives(found, document)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _alternatives(one, document)
    else:
        yield schema


def _fields(schema: Schema, document: Schema) -> list[str]:
    return [name for one in _alternatives(schema, document) for name in one.get("properties", {})]


def _problem(error: Mapping[str, Any], schema: Schema, document: Schema) -> str:
    takes = _expected(schema, document)
    if error["type"] == "missing":
        return f"it is missing; expected {takes}"
    if error["type"] == "string_unicode":
        return f"expected {takes}, got characters that are not Unicode (half of a surrogate pair)"
    return f"expected {takes}, got {_got(error.get('input'))}"


def _expected(schema: Schema, document: Schema) -> str:
    """What a value may be, in words."""
    texts: list[str] = []
    seen: list[Schema] = []
    for one in _alternatives(schema, document):
        texts.append(_kind(one, document, seen))
        seen.append(one)
    return ", or ".join(texts)


def _kind(schema: Schema, document: Schema, seen: Sequence[Schema]) -> str:
    if "enum" in schema or "const" in schema:
        return f"one of {', '.join(schema.get('enum', [schema.get('const')]))}"
    kind = schema.get("type")
    if kind == "array":
        item = next(_alternatives(schema["items"], document))
        many = _PLURALS.get(str(item.get("type")), "objects")
        one = many[:-1] if schema.get("maxItems", schema.get("minItems")) == 1 else many
        such = f"such {one}" if item in seen else one + _range(item, "Length", " of {}", "characters")
        return f"a list of {_range(schema, 'Items', '{} ')}{such}"
    if kind == "object":
        return f"an object with the fields {', '.join(schema.get('properties', {}))}"
    if kind == "integer":
        return f"a whole number{_range(schema, 'imum', ' {}')}"
    plain = {"boolean": "true or false", "null": "null", "number": "a number"}
    return plain.get(str(kind), f"a text{_range(schema, 'Length', ' of {}', 'characters')}")


def _range(schema: Schema, what: str, frame: str, unit: str = "") -> str:
    """The bounds of a schema in words, within a frame; nothing where there are none."""
    least, most = (_whole(schema.get(f"{end}{what}")) for end in ("min", "max"))
    between = "from {:,} to {:,}" if what == "imum" else "{:,} to {:,}"
    if least is None and most is None:
        return ""
    if least is None:
        words = f"at most {most:,}"
    elif most is None:
        words = f"at least {least:,}"
    else:
        words = between.format(least, most)
    if what == "imum" and None in (least, most):
        words = f"of {words}"
    one = unit.removesuffix("s") if (most is None and least == 1) or most == 1 else unit
    return frame.format(f"{words} {one}".rstrip())


def _whole(bound: float | None) -> float | None:
    return int(bound) if bound is not None and bound == int(bound) else bound


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
    return f"a text of {counted(len(value), 'character')}" if isinstance(value, str) else f"{shown[:_SHOWN]}…"
