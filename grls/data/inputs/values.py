"""Single values from Python: ids, paths, and values that JSON can hold."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from grls.errors import DataError

_SHOWN = 60  # characters of a value in an error text


def short_repr(value: Any) -> str:
    """A value in an error text, cut if it is long."""
    try:
        text = ascii(value) if isinstance(value, str) and not is_whole_text(value) else repr(value)
    except Exception:  # whatever the class of the value does
        text = object.__repr__(value)
    text = " ".join(text.split()) if "\n" in text else text  # a data frame
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def is_whole_text(text: str) -> bool:
    """Whether a text is whole characters: half of a surrogate pair is in no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_list(names: Collection[Any], most: int = 8) -> str:
    """Names in an error text, separated by commas."""
    texts = [repr(name) for name in list(names)[:most]]
    return ", ".join([*texts, "…"] if len(names) > most else texts) or "none"


def json_value(value: Any) -> Any:
    """A value of another library as JSON holds it; a missing value (None, NaN, NaT, NA) is None.

    Arrays become lists, numbers of numpy become numbers of Python, and dates their ISO text. A value that
    JSON cannot hold stays as it is.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if _is_missing(value):
        return None
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    return value.isoformat() if hasattr(value, "isoformat") else value


def _is_missing(value: Any) -> bool:
    """Whether a value is NaN, NaT or NA: such a value does not equal itself."""
    if hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA is neither equal nor unequal
        return True


def id_text(value: Any, what: str, source: str) -> str:
    """An id as a text: whole numbers are written in digits.

    Args:
        value: The id.
        what: What has the id, for the error text.
        source: The name of the source, for the error text.

    Raises:
        DataError: It is neither a text nor a whole number, or it is empty.
    """
    name = json_value(value)
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if isinstance(name, str) and name:
        return name
    if name == "":
        raise DataError(f"{what} has an empty id; every id needs at least one character.", source)
    whole = "; a column with missing values turns whole numbers into fractions" * isinstance(name, float)
    raise DataError(f"{what}: expected an id that is a text or a whole number, got {value!r}{whole}.", source)


def id_list(value: Any, what: str, source: str) -> list[str]:
    """Ids from a list, or from a single id.

    Raises:
        DataError: It is something else, or an id is repeated.
    """
    ids = json_value(sorted(value, key=str) if isinstance(value, set | frozenset) else value)
    if isinstance(ids, str | int):
        ids = [ids]
    if not isinstance(ids, list):
        raise DataError(f"{what}: expected a list of passage ids, got {short_repr(value)}.", source)
    names = [id_text(one, what, source) for one in ids]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{what}: the passage id {repeated!r} is repeated; name each passage once.", source)
    return names


def existing_path(value: Any, source: str) -> Path | None:
    """The path that a value is: any ``Path``, or a text that names something on disk; None for all else.

    Args:
        value: The value.
        source: The name of what is read from it, for the error text.

    Raises:
        DataError: It is a ``Path`` that nothing on disk can have.
    """
    if not isinstance(value, str | os.PathLike) or value == "":
        return None
    try:
        path = Path(value)
        there = path.exists()
    except (OSError, ValueError, TypeError) as error:  # too long for a name, with a NUL, or bytes
        if isinstance(value, str):
            return None
        raise DataError(f"{short_repr(value)} can be no path ({error}).", source) from None
    return path if there or not isinstance(value, str) else None
