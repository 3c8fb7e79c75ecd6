"""Errors that name the fields of a request.

The library below names options as the shell has them (``--hops.steps fixed``). A client finds the field
(``hops.steps "fixed"``) instead. Options that no request takes are set where the server is started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grls.api.naming import with_options
from grls.retrieve.hops.options import HopOptions
from grls.serve.answers.bodies import AnswerBody
from grls.serve.bodies import ExplainBody, HopsBody, SearchBody, StreamBody
from grls.serve.bodies_trace import TraceBody

_BODIES = (SearchBody, StreamBody, TraceBody, ExplainBody, AnswerBody)
_HOPS = frozenset(f"hops.{name}" for name in HopsBody.model_fields)
_FIELDS = _HOPS | frozenset(name for body in _BODIES for name in body.model_fields)
_OTHER_NAMES = {"case.gold": "gold", "case.evidence": "evidence"}
_SET_HOPS = re.compile(rf"\bhops\.(?:{'|'.join(HopOptions.__dataclass_fields__)})\b")
_ARGUMENTS = re.compile(rf"\bhops\.({'|'.join(HopsBody.model_fields)})\b")


def in_json(text: str) -> str:
    """A text with options as requests have them: ``--hops.steps fixed`` -> ``hops.steps "fixed"``.

    Options that no request takes stay, and a last sentence says who sets them.
    """
    beyond: list[str] = []

    def write(option: str, values: Sequence[str]) -> str:
        name = _OTHER_NAMES.get(option, option)
        if name in _FIELDS:
            return " ".join([name, *([" or ".join(map(_value, values))] if values else [])])
        beyond.append(f"--{option}")
        return " ".join([f"--{option}", " or ".join(values)]).rstrip()

    written = with_options(text, write)
    beyond += [name for name in _SET_HOPS.findall(written) if name not in _HOPS]
    if not beyond:
        return written
    return f"{written} Only the operator of the server can set {', '.join(dict.fromkeys(beyond))}."


def as_arguments(text: str) -> str:
    """A text with the fields of requests as the arguments of tools: ``hops.max`` -> ``max``."""
    return _ARGUMENTS.sub(r"\1", text)


def _value(value: str) -> str:
    plain = value in ("true", "false", "null") or value.replace(".", "", 1).isdigit()
    return value if plain else f'"{value}"'
