"""What all metrics share: averages over queries, the check of cut-offs, and their cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

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


def metric_card(metric: Callable[..., Any], description: str | None, **inputs: Any) -> Any:
    """The card by which ``evaluate`` knows a metric.

    Args:
        metric: Computes it; its docstring says what the inputs are.
        description: The convention.
        inputs: The kind of each input: the name of a type, or a list or a dict of kinds.

    Returns:
        An ``evaluate.MetricInfo``.
    """
    import datasets
    import evaluate

    def feature(kind: Any) -> Any:
        if isinstance(kind, dict):
            return {name: feature(part) for name, part in kind.items()}
        return datasets.List(feature(kind[0])) if isinstance(kind, list) else datasets.Value(kind)

    return evaluate.MetricInfo(
        description=description,
        citation="",
        inputs_description=metric.__doc__,
        features=datasets.Features({name: feature(kind) for name, kind in inputs.items()}),
    )
