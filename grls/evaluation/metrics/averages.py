"""What all metrics share: averages over queries, the check of cut-offs, and their class for ``evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from grls.errors import ConfigError, DataError

KS = (1, 5, 10, 20)
"""The default cut-offs."""


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean; there must be a value (DataError)."""
    numbers = [float(value) for value in values]
    if not numbers:
        raise DataError("there is no query to average over; give at least one query with its gold.")
    return sum(numbers) / len(numbers)


def cutoffs(ks: Sequence[int]) -> list[int]:
    """The cut-offs, ascending and without repeats; there must be one, and none below 1 (ConfigError)."""
    if not ks or min(ks) < 1:
        raise ConfigError(f"expected cut-offs k of at least 1, got {list(ks)}.")
    return sorted(set(ks))


def metric_class(metric: Callable[..., Any], module: str, **inputs: Any) -> type[Any]:
    """The class by which ``evaluate.load`` finds the metric of a file.

    Args:
        metric: Takes the inputs in their order, then the other keywords of ``compute`` (``k`` as ``ks``).
        module: The name of its module, whose docstring is the convention.
        inputs: The kind of each input: the name of a type, or a list or a dict of kinds.

    Returns:
        A class of ``evaluate.Metric``.
    """
    import datasets
    import evaluate

    convention = sys.modules[module].__doc__

    def feature(kind: Any) -> Any:
        if isinstance(kind, dict):
            return {name: feature(part) for name, part in kind.items()}
        return datasets.List(feature(kind[0])) if isinstance(kind, list) else datasets.Value(kind)

    def info(self: Any) -> Any:
        return evaluate.MetricInfo(
            description=convention,
            citation="",
            inputs_description=metric.__doc__ or convention,
            features=datasets.Features({name: feature(kind) for name, kind in inputs.items()}),
        )

    def compute(self: Any, k: Sequence[int] | None = None, **values: Any) -> Any:
        options = {name: value for name, value in values.items() if name not in inputs}
        return metric(*map(values.get, inputs), **options, **({} if k is None else {"ks": k}))

    return type(module.rpartition(".")[2], (evaluate.Metric,), {"_info": info, "_compute": compute})
