"""Tables over pairs of runs of one data set: is the difference chance, and do they retrieve the same?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from grls.evaluation.price import Price, price_of_end, runs_without_end, what_ends
from grls.evaluation.significance import CONFIDENCE, Comparison, compare, holm, shown_p
from grls.io.counts import counted
from grls.report.blocks import NONE, Cell, Table
from grls.report.measure import Measured, MeasuredGroup

_LEVEL = 0.05


def significance_table(
    group: MeasuredGroup,
    what: str,
    values: Callable[[Measured], Sequence[float] | None],
    baseline: str | None = None,
    seed: int = 0,
) -> Table | None:
    """Every run against a reference run, tested query by query.

    Args:
        group: The data set.
        what: The name of the metric.
        values: A run -> one value a query; None for a run without values.
        baseline: Label of the reference run; the best run if it is None or has no values.
        seed: Seed of the resampling.

    Returns:
        The table, or None if fewer than two runs have values.
    """
    measured = [(run, scores) for run in group.runs if (scores := values(run)) is not None]
    if len(measured) < 2:
        return None
    named = [n for n, (run, _) in enumerate(measured) if run.label == baseline]
    reference = named[0] if named else max(range(len(measured)), key=lambda n: fmean(measured[n][1]))
    label, against = measured[reference][0].label, measured[reference][1]
    others = [n for n in range(len(measured)) if n != reference]
    comparisons = {n: compare(measured[n][1], against, seed=seed) for n in others}
    corrected = dict(zip(others, holm([comparisons[n].p for n in others]), strict=True))
    rows = [
        (
            Cell(run.label),
            Cell(f"{100 * fmean(scores):.1f}"),
            *_compared(comparisons.get(n), corrected.get(n, 1.0)),
        )
        for n, (run, scores) in enumerate(measured)
    ]
    why = "the baseline asked for" if named else "the best"
    return Table(
        f"significance-{what.lower().replace(' ', '-').replace('@', '')}-{group.group.name}",
        f"{what}: every run against {label} ({why}), {counted(len(against), 'query')}",
        (),
        ("run", f"{what} (%)", "difference", f"{CONFIDENCE:.0%} interval", "p", "p, Holm"),
        1,
        tuple(rows),
        "Differences in points, paired by query. Interval: percentile bootstrap. p: two-sided paired "
        f"permutation test; p, Holm: corrected for the {len(others)} comparisons of this table, marked if "
        f"below {_LEVEL}. Runs without a value are left out. Seed {seed}.",
    )


def price_table(group: MeasuredGroup, seed: int = 0) -> Table | None:
    """What runs lose by their end, each beside the run of the same system without an end.

    Args:
        group: The data set.
        seed: Seed of the resampling.

    Returns:
        The table, or None if no run has such a run beside it.
    """
    pairs = runs_without_end([run.entry.info for run in group.runs])
    if not pairs:
        return None
    runs = [(group.runs[ended], group.runs[other]) for ended, other in pairs.items()]
    prices = [_price(group, ended, other, seed) for ended, other in runs]
    heads = ("run", "beside", "ended by", "set F1 (%)", "set F1, known number (%)")
    tests = ("price", f"{CONFIDENCE:.0%} interval", "p", "too short", "right length", "too long")
    return Table(
        f"price-{group.group.name}",
        "The price of DONE, or of a cut: what set F1 loses because the number of gold passages is not known",
        (),
        (*heads, *tests),
        3,
        tuple(_priced(*pair, price) for pair, price in zip(runs, prices, strict=True)),
        "Known number: the first n passages of the run beside it, which is of the same system and does not "
        "end, for n gold passages. Price: that F1 less set F1 as the run ended, in points, with interval and "
        'p as below "Significance". Too short, right length, too long: queries whose chain has fewer '
        f"passages than are gold, as many, or more. {_bounds(runs, prices)}Seed {seed}.",
    )


def _price(group: MeasuredGroup, run: Measured, other: Measured, seed: int) -> Price:
    ended = run.retrieved if run.chains is None else run.chains
    return price_of_end(ended, other.retrieved, group.gold, what=what_ends(run.entry.info), seed=seed)


def _bounds(runs: Sequence[tuple[Measured, Measured]], prices: Sequence[Price]) -> str:
    """Which prices are lower bounds, and why; empty where none is."""
    return "".join(
        f"The price of {run.label} is a lower bound: for {counted(price.beyond, 'query')} {other.label} has "
        "fewer passages than are gold. "
        for (run, other), price in zip(runs, prices, strict=True)
        if price.beyond
    )


def _priced(run: Measured, other: Measured, price: Price) -> tuple[Cell, ...]:
    every = price.groups["all"]
    lengths = [price.groups.get(name) for name in ("too short", "right length", "too long")]
    return (
        Cell(run.label),
        Cell(other.label),
        Cell(price.what),
        Cell(f"{100 * every.ended:.1f}"),
        Cell(f"{100 * every.known:.1f}"),
        *_compared(every.price, every.price.p)[:3],
        *(Cell("0" if one is None else f"{one.price.queries:,}") for one in lengths),
    )


def _compared(result: Comparison | None, corrected: float) -> tuple[Cell, ...]:
    if result is None:
        return (Cell("reference"), Cell(NONE), Cell(NONE), Cell(NONE))
    interval = NONE
    if result.low is not None and result.high is not None:
        interval = f"{_points(result.low)} to {_points(result.high)}"
    return (
        Cell(_points(result.difference)),
        Cell(interval),
        Cell(shown_p(result.p)),
        Cell(shown_p(corrected), strong=corrected < _LEVEL),
    )


def _points(share: float) -> str:
    text = f"{100 * share:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def overlap(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    k: int,
    gold: Sequence[Sequence[str]] | None,
) -> float | None:
    """Mean Jaccard overlap of the first k passages of two runs: |A ∩ B| / |A ∪ B|.

    Args:
        first: Ids of each query's hits.
        second: Ids of the other run's hits, in the same order of queries.
        k: Number of hits of each.
        gold: Gold passages of each query; if not None, only gold hits count.

    Returns:
        A share in [0, 1], over the queries for which at least one of the runs has such a hit; None if there
        is no such query.
    """
    shares = []
    for n, (one, other) in enumerate(zip(first, second, strict=True)):
        a, b = set(one[:k]), set(other[:k])
        if gold is not None:
            a, b = a & set(gold[n]), b & set(gold[n])
        if a | b:
            shares.append(len(a & b) / len(a | b))
    return fmean(shares) if shares else None


def similarity_tables(group: MeasuredGroup, k: int) -> list[Table]:
    """Heat maps of the similarity of the runs' predictions, all and correct ones (figures 7 and 8)."""
    if len(group.runs) < 2:
        return []
    return [
        _heat_map(group, k, None, "all", f"Similarity of all predictions in the first {k}"),
        _heat_map(group, k, group.gold, "correct", f"Similarity of the correct predictions in the first {k}"),
    ]


def _heat_map(
    group: MeasuredGroup, k: int, gold: Sequence[Sequence[str]] | None, name: str, caption: str
) -> Table:
    rows = []
    deep = {id(run) for run in group.runs if run.reach.tells(f"R@{k}")}
    for n, run in enumerate(group.runs, 1):
        shares = [
            overlap(run.retrieved, other.retrieved, k, gold) if {id(run), id(other)} <= deep else None
            for other in group.runs
        ]
        cells = [Cell(NONE if s is None else f"{s:.2f}", shade=s) for s in shares]
        rows.append((Cell(f"{n}. {run.label}"), *cells))
    counted = "any passage" if gold is None else "any gold passage"
    return Table(
        f"similarity-{name}-{group.group.name}",
        caption,
        (),
        ("run", *(str(n) for n in range(1, len(rows) + 1))),
        1,
        tuple(rows),
        "Jaccard overlap |A ∩ B| / |A ∪ B| of two runs' passages, 1 if they are the same, averaged over "
        f"the queries for which at least one of the two has {counted}; a dash where one was cut off before "
        f"{k}.",
        heat=True,
    )
