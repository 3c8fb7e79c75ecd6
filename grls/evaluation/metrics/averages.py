"""What the metrics share: averages over queries and the check of cut-offs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grls.errors import ConfigError, DataError

KS = (1, 5, 10, 20)
"""The cut-offs reported unless others are asked for."""


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean.

    Raises:
        DataError: There is nothing to average.
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise DataError("there is no query to average over; give at least one query with its gold.")
    return sum(numbers) / len(numbers)


def cutoffs(ks: Sequence[int]) -> list[int]:
    """The cut-offs, ascending and each once.

    Raises:
        ConfigError: There is none, or one is below 1.
    """
    if not ks or min(ks) < 1:
        raise ConfigError(f"expected cut-offs k of at least 1, got {list(ks)}.")
    return sorted(set(ks))
