"""Reads and writes files of one JSON object a line. Every error names file, line and the wrong value.

The module does not know which fields there are. Passages: :mod:`grls.data.corpus`. Queries:
:mod:`grls.data.dataset`.
"""

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
    """Yield (line number, object) for every line that is not blank.

    Raises:
        DataError: The file is missing or is not UTF-8; or a line is not a JSON object, has a key twice, holds
            a number that JSON does not know (``NaN``, ``Infinity``), or an escape of half a character.
    """
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
    """Write one object as one line."""
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

    Args:
        record: The object.
        key: The field.
        file: The file of the object, for the error.
        line: Its line in the file.
        default: The value of a missing field, or of null; None requires the field.
        empty: Whether a required field may be empty.

    Raises:
        DataError: The field is no string, or a required field is missing or empty.
    """
    value = record.get(key, default)
    if isinstance(value, str) and (value or empty or default is not None):
        return value
    if value is None and default is not None:
        return default
    what = "the key is missing" if key not in record else f"got {value!r}"
    raise DataError(f"expected {key!r} to be a {'' if empty else 'non-empty '}string, {what}.", file, line)


def object_of(record: dict[str, Any], key: str, file: str | Path, line: int | None) -> dict[str, Any]:
    """A field that is an object; an empty object if the field is missing or null.

    Raises:
        DataError: The field is something else.
    """
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"expected {key!r} to be a JSON object, got {value!r}.", file, line)
    return value


def refuse_half_characters(record: dict[str, Any], file: str | Path, line: int | None = None) -> None:
    """Refuse an object with half of a surrogate pair, which JSON can escape and UTF-8 cannot hold.

    Raises:
        DataError: It holds one.
    """
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the escape \\u{ord(error.object[error.start]):04x} is half a character (a lone surrogate), "
            "which no UTF-8 text can hold; remove or repair it.",
            file,
            line,
        ) from None
