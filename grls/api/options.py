"""Options that are named in a call, as one of the library's dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from grls.errors import ConfigError

Options = TypeVar("Options")


def options_of(cls: type[Options], values: Mapping[str, Any], call: str) -> Options:
    """A dataclass of options from the arguments of a call.

    Args:
        cls: The dataclass.
        values: Options by name; a list stands for a tuple.
        call: The name of the call, for errors.

    Raises:
        ConfigError: An option is unknown, lacking, or has a value that cannot work.
    """
    known = [one.name for one in fields(cls)]  # type: ignore[arg-type]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ConfigError(f"{call} has no option {unknown[0]!r}; known are {', '.join(known)}.")
    try:
        return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in values.items()})
    except TypeError as error:
        raise ConfigError(f"{call}: an option has a value of the wrong type ({error}).") from error
