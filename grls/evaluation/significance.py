"""Is the difference between two runs more than chance? Paired tests over the queries of both runs.

The unit is the query: both runs have one value for each query, in the same order, and a query without an
answer has the value 0. ``scipy.stats`` does the work; this module fixes the convention (two-sided, percentile
interval, fixed seed) and adds Holm's correction, which scipy lacks. Pages that compare many runs:
:mod:`grls.report`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats

from grls.errors import DataError
from grls.evaluation.evaluate import Judged
from grls.evaluation.measures import MEASURES, query_values, shared_depth, shared_name
from grls.evaluation.metrics import KS, recall_at
from grls.io.progress import counted

RESAMPLES = 9999
CONFIDENCE = 0.95
LEVEL = 0.05
"""P values below it are marked in tables."""
_BATCH = 500  # resamples held in memory at a time


Key = TypeVar("Key", bound=Hashable)


class Comparison(NamedTuple):
    """A comparison of two runs.

    Attributes:
        difference: Mean over queries of (first - second).
        low: Lower end of the bootstrap interval of the difference; None for fewer than two queries.
        high: Upper end.
        p: Two-sided p of the paired permutation test, not corrected.
        queries: Number of queries.
    """

    difference: float
    low: float | None
    high: float | None
    p: float
    queries: int

    @property
    def interval(self) -> str:
        """The interval in points; a dash for fewer than two queries."""
        if self.low is None or self.high is None:
            return "-"
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"


def compare(
    first: Sequence[float], second: Sequence[float], resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare two runs query by query.

    The permutation test swaps the two values of each query at random; if all 2^n swaps are at most
    ``resamples``, it takes all of them, and is exact. The interval is the percentile bootstrap of the mean
    difference (Efron and Tibshirani 1993, ch. 13), which draws queries with both values.

    Args:
        first: One value a query.
        second: The other run's values, in the same order of queries.
        resamples: Number of random permutations, and of bootstrap samples.
        seed: Seed of permutations and samples.
    """
    if len(first) != len(second) or not len(first):
        raise DataError(
            f"expected values of the same queries for both runs, and at least one; got {len(first)} and "
            f"{len(second)}."
        )
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    low: float | None = None
    high: float | None = None
    if len(differences) > 1:
        interval = stats.bootstrap(
            (differences,),
            np.mean,
            confidence_level=CONFIDENCE,
            method="percentile",  # BCa is undefined if all differences are equal
            n_resamples=resamples,
            batch=_BATCH,
            rng=seed,
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    # A query with equal values adds 0 however it is swapped: without it the test more often is exact.
    unequal = differences[differences != 0]
    p = 1.0  # of fewer than two: both swaps are as extreme as the observed difference
    if len(unequal) > 1:
        test = stats.permutation_test(
            (unequal, np.zeros_like(unequal)),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=resamples,
            batch=_BATCH,
            rng=seed,
        )
        p = float(test.pvalue)
    return Comparison(float(differences.mean()), low, high, p, len(first))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p values that hold for all comparisons together.

    Holm 1979: with p sorted upwards, p(i) of n is multiplied by n - i + 1, never falls below the corrected p
    before it, and is at most 1. The result has the order of ``p_values``.
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[i] * (len(p_values) - rank)))
        corrected[i] = highest
    return corrected


def compare_with(
    baseline: Sequence[float], others: Mapping[Key, Sequence[float]], seed: int = 0
) -> dict[Key, tuple[Comparison, float]]:
    """Several runs compared with a baseline, each with its p by Holm's correction for all of them."""
    comparisons = {name: compare(values, baseline, seed=seed) for name, values in others.items()}
    corrected = holm([comparison.p for comparison in comparisons.values()])
    return dict(zip(comparisons, zip(comparisons.values(), corrected, strict=True), strict=True))


def shown_points(difference: float) -> str:
    """A difference in points, with its sign; ``0.0`` for what rounds to nothing."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def shown_p(p: float) -> str:
    """A p value in a table, never 0."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def compare_runs(
    run: Judged, baseline: Judged, ks: Sequence[int] = KS, measures: Sequence[str] = MEASURES
) -> dict[str, Comparison]:
    """Compare two runs over the judged queries of a split.

    Returns:
        ``recall@k`` and each measure -> the comparison of the run with the baseline, without those that read
        deeper than one of the two was cut off. A measure without a cut-off is compared at the depth that both
        have, and called by it (``RR@10``).
    """
    depths = [run.depth, baseline.depth]
    values, shared = [], shared_depth(depths)
    for each in (run, baseline):
        ranked = {query: ids[:shared] for query, ids in each.ids.items()}
        recalls = {f"recall@{k}": [recall_at(ranked[q], each.gold[q], k) for q in ranked] for k in ks}
        values.append(recalls | query_values(measures, ranked, each.qrels))
    metrics = [name for name in values[0] if all(depth.tells(name) for depth in depths)]
    return {shared_name(name, depths): compare(values[0][name], values[1][name]) for name in metrics}


def format_comparison(compared: Mapping[str, Comparison], baseline: str) -> str:
    """A table: difference in points, its interval, p."""
    first = next(iter(compared.values()))
    lines = [
        f"beside {baseline}, {counted(first.queries, 'query')}: difference in points, {CONFIDENCE:.0%} "
        "interval, p"
    ]
    for name, result in compared.items():
        lines.append(f"{name:<22}{100 * result.difference:+8.1f}   {result.interval:<16} {shown_p(result.p)}")
    return "\n".join(lines)
