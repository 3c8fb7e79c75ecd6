"""Averages over queries and the check of cut-offs, for all metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grls.errors import ConfigError, DataError

KS = (1, 5, 10, 20)
"""The default cut-offs."""


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean.

    Raises:
        DataError: There is no value.
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise DataError("there is no query to average over; give at least one query with its gold.")
    return sum(numbers) / len(numbers)


def cutoffs(ks: Sequence[int]) -> list[int]:
    """The cut-offs, ascending and without repeats.

    Raises:
        ConfigError: There is no cut-off, or a cut-off is below 1.
    """
    if not ks or min(ks) < 1:
        raise ConfigError(f"expected cut-offs k of at least 1, got {list(ks)}.")
    return sorted(set(ks))
