"""JSONL: reading with the line of every error, and writing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from grls.errors import DataError
from grls.io.files import text_lines

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair of escapes, or a lone one


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line that is not blank."""
    file = Path(path)
    if not file.is_file():
        raise DataError("no such file; expected one JSON object a line.", file)
    for line, text in text_lines(file):
        if not text.strip():
            continue
        try:
            record = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:  # also an integer too long for Python
            raise DataError(f"expected a JSON object ({error}).", file, line) from None
        if not isinstance(record, dict):
            raise DataError(f"expected a JSON object, got {type(record).__name__}.", file, line)
        if _SURROGATE.search(text):
            refuse_half_characters(record, file, line)
        yield line, record


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} occurs twice")
    return record


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number; write null or a text")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def write_line(stream: IO[str], record: dict[str, Any]) -> None:
    stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def string_of(
    record: dict[str, Any],
    key: str,
    file: str | Path,
    line: int | None,
    default: str | None = None,
    empty: bool = False,
) -> str:
    """A field that is a string.

    A missing field, or null, has the ``default``; without a default the field is required, and may be empty
    if ``empty``.
    """
    value = record.get(key, default)
    if isinstance(value, str) and (value or empty or default is not None):
        return value
    if value is None and default is not None:
        return default
    fault = "the key is missing" if key not in record else f"got {value!r}"
    raise DataError(f"expected {key!r} to be a {'' if empty else 'non-empty '}string, {fault}.", file, line)


def object_of(record: dict[str, Any], key: str, file: str | Path, line: int | None) -> dict[str, Any]:
    """A field that is an object; missing or null: an empty object."""
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"expected {key!r} to be a JSON object, got {value!r}.", file, line)
    return value


def refuse_half_characters(record: dict[str, Any], file: str | Path, line: int | None = None) -> None:
    """Refuse an object with half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the escape \\u{ord(error.object[error.start]):04x} is half a character (a lone surrogate), "
            "which no UTF-8 text can hold; remove or repair it.",
            file,
            line,
        ) from None
