"""The search that all tuning shares: settings are measured on dev, and one of them is chosen.

Few queries mislead: of two settings that differ by less than chance would make it, the simpler one is as good
a guess. So :func:`simplest` takes the least costly of the settings within one standard error of the best (of
the paired difference, query by query; Breiman et al. 1984, section 3.4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from grls.io.progress import Progress

if TYPE_CHECKING:
    from grls.retrieve.fusion.retriever import Fusion

Value = TypeVar("Value", bound=Any)


def best(measure: Callable[..., Value], *values: Sequence[Any]) -> tuple[tuple[Any, ...], Value]:
    """The best of all combinations of values, and what ``measure`` says of it; of equal ones the first."""
    settings, measured = [*product(*values)], []
    with Progress(len(settings), "tune with", "settings", shown=None) as bar:
        for setting in settings:
            measured.append(measure(*setting))
            bar.update()
    number = max(range(len(settings)), key=measured.__getitem__)
    return settings[number], measured[number]


def best_weights(
    fusion: Fusion, members: int, measure: Callable[[Fusion], Value]
) -> tuple[tuple[float, ...], Value]:
    """The best weights of a fusion, of multiples of 0.1 that sum to one; of equal ones the most even."""
    (weights,), value = best(lambda weights: measure(replace(fusion, weights=weights)), weight_grid(members))
    return weights, value


class Tried(NamedTuple):
    """A setting and its value for each dev query; of equal means the higher ``order`` is better."""

    setting: Any
    values: Sequence[float]
    order: float = 0.0

    @property
    def mean(self) -> float:
        return fmean(self.values)

    def rank(self) -> tuple[float, float]:
        return self.mean, self.order


def simplest(tried: Sequence[Tried], cost: Callable[[Any], Any]) -> Tried:
    """Of the settings within one standard error of the best the least costly one; of these the best."""
    highest = max(tried, key=Tried.rank)
    near = [one for one in tried if as_good(one.values, highest.values)]
    return min(near, key=lambda one: (cost(one.setting), -one.mean, -one.order))


def as_good(values: Sequence[float], best: Sequence[float], errors: float = 1.0) -> bool:
    """Whether the mean of values is within so many standard errors of that of the best."""
    return fmean(best) - fmean(values) <= errors * paired_error(best, values) + 1e-9


def paired_error(first: Sequence[float], second: Sequence[float]) -> float:
    """The standard error of the mean difference of two settings, query by query; 0 below two queries."""
    differences = np.subtract(first, second)
    if len(differences) < 2:
        return 0.0
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def weight_grid(members: int, steps: int = 10) -> list[tuple[float, ...]]:
    """All weights that are multiples of 1/steps and sum to one, the most even first.

    Of equally even weights, those that favour earlier members come first.
    """
    counts = []
    for bars in combinations(range(steps + members - 1), members - 1):
        edges = (-1, *bars, steps + members - 1)
        counts.append(tuple(b - a - 1 for a, b in pairwise(edges)))
    counts.sort(key=lambda parts: (sum(part * part for part in parts), [-part for part in parts]))
    return [tuple(part / steps for part in parts) for parts in counts]
