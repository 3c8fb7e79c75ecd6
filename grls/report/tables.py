"""The tables of a page for the runs of a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from grls.evaluation.measures import shared_name
from grls.evaluation.significance import CONFIDENCE, Comparison, compare_with, shown_p, shown_points
from grls.io.progress import counted
from grls.report.blocks import NONE, Cell, Column, Table, Value, value_table
from grls.report.runs import SYSTEMS, DataGroup, ScoredRun

IDENTITY = ("run", "system", "steps")
"""Headings of the cells of :func:`identity`."""

REACH = (
    "A ranking that was cut off before k has no value at k; lists that are whole and chains that end keep "
    "their value beyond their end."
)
"""What a dash in a column of cut-off k means; a page says it once."""

Rows = Mapping[tuple[str, ...], Mapping[str, Value]]
"""Heading cells of a row -> metric -> value."""


def identity(run: ScoredRun) -> tuple[str, ...]:
    return run.label, SYSTEMS.get(run.system, NONE), run.steps or NONE


def metric_table(
    name: str, caption: str, rows: Rows, columns: Mapping[str, Column], note: str = "", by: str = ""
) -> Table:
    """Metrics of runs; ``by``: a heading behind :data:`IDENTITY`, within whose values the best is marked."""
    cells = [(key, [values.get(metric) for metric in columns]) for key, values in rows.items()]
    stubs = (*IDENTITY, by) if by else IDENTITY
    within = len(IDENTITY) if by else None
    return value_table(name, caption, stubs, [*columns.values()], cells, note, within)


def recall_table(group: DataGroup, ks: Sequence[int], k: int) -> Table:
    """Recall of every run, the best by recall@k first (the form of table 2 of arXiv 2204.13596)."""
    rows = {identity(run): run.report["sequence_recall"] for run in group.runs}
    rows = dict(sorted(rows.items(), key=lambda row: -(row[1].get(f"recall@{k}") or -1.0)))
    return metric_table(
        f"recall-{group.name}",
        "Sequence recall (%) of every run, single-step and multi-step",
        rows,
        {f"recall@{k}": Column(f"R@{k}") for k in ks},
        "R@k: share of a query's gold passages among the first k retrieved, averaged over judged queries.",
    )


def measures_table(group: DataGroup) -> Table:
    rows = {identity(run): run.report.get("measures", {}) for run in group.runs}
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(name for values in rows.values() for name in values):
        # In some no run is best: they say nothing of quality, or read runs to various depths.
        deep = shared_name(name, [run.reach for run in group.runs]) != name
        best: Literal["high", ""] = "" if name.startswith("Judged") or deep else "high"
        columns[name] = Column(name, best=best)
    return metric_table(
        f"measures-{group.name}",
        "Standard measures (%) of every run",
        rows,
        columns,
        "By ir_measures, with the grades of the qrels, as trec_eval counts: nDCG: normalized discounted "
        "cumulative gain; RR: reciprocal rank; AP: average precision; P: precision; Judged: share of the "
        "first k that the qrels judge. RR and AP read all that a run holds, so no run is marked as the best "
        "where runs were cut off at various depths.",
    )


_LEVEL = 0.05


def significance_table(
    group: DataGroup,
    metric: str,
    values: Callable[[ScoredRun], Sequence[float] | None],
    baseline: str | None = None,
    seed: int = 0,
) -> Table | None:
    """Every run tested against a reference run, query by query; None if fewer than two runs have values.

    ``values``: a run -> one value a query. ``baseline``: label of the reference run; else the best run.
    """
    measured = [(run, scores) for run in group.runs if (scores := values(run)) is not None]
    if len(measured) < 2:
        return None
    named = [n for n, (run, _) in enumerate(measured) if run.label == baseline]
    reference = named[0] if named else max(range(len(measured)), key=lambda n: fmean(measured[n][1]))
    label, against = measured[reference][0].label, measured[reference][1]
    others = {n: scores for n, (_, scores) in enumerate(measured) if n != reference}
    compared = compare_with(against, others, seed)
    rows = [
        (
            Cell(run.label),
            Cell(f"{100 * fmean(scores):.1f}"),
            *_compared(compared.get(n)),
        )
        for n, (run, scores) in enumerate(measured)
    ]
    reason = "the baseline asked for" if named else "the best"
    return Table(
        f"significance-{metric.lower().replace(' ', '-').replace('@', '')}-{group.name}",
        f"{metric}: every run against {label} ({reason}), {counted(len(against), 'query')}",
        ("run", f"{metric} (%)", "difference", f"{CONFIDENCE:.0%} interval", "p", "p, Holm"),
        1,
        tuple(rows),
        "Differences in points, paired by query. Interval: percentile bootstrap. p: two-sided paired "
        f"permutation test; p, Holm: corrected for the {len(compared)} comparisons of this table, marked "
        f"if below {_LEVEL}. Runs without a value are left out. Seed {seed}.",
    )


def _compared(found: tuple[Comparison, float] | None) -> tuple[Cell, ...]:
    if found is None:
        return (Cell("reference"), Cell(NONE), Cell(NONE), Cell(NONE))
    result, corrected = found
    interval = NONE
    if result.low is not None and result.high is not None:
        interval = f"{_points(result.low)} to {_points(result.high)}"
    return (
        Cell(_points(result.difference)),
        Cell(interval),
        Cell(shown_p(result.p)),
        Cell(shown_p(corrected), strong=corrected < _LEVEL),
    )


def _points(difference: float) -> str:
    return shown_points(difference).replace("-", "−")


def overlap(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    k: int,
    gold: Sequence[Sequence[str]] | None,
) -> float | None:
    """Mean Jaccard overlap of the first k passages of two runs: |A ∩ B| / |A ∪ B|; None without such a query.

    With ``gold``, only gold passages count. Queries for which neither run has a passage that counts are
    left out.
    """
    shares = []
    for n, hits in enumerate(zip(first, second, strict=True)):
        a, b = (set(ids[:k]) for ids in hits)
        if gold is not None:
            a, b = a & set(gold[n]), b & set(gold[n])
        if a | b:
            shares.append(len(a & b) / len(a | b))
    return fmean(shares) if shares else None


def similarity_tables(group: DataGroup, k: int) -> list[Table]:
    """Heat maps of the similarity of the runs' predictions, all and correct ones (figures 7 and 8)."""
    if len(group.runs) < 2:
        return []
    return [_heat_map(group, k, None), _heat_map(group, k, group.gold)]


def _heat_map(group: DataGroup, k: int, gold: Sequence[Sequence[str]] | None) -> Table:
    rows = []
    deep = {id(run) for run in group.runs if run.reach.tells(f"R@{k}")}
    for n, run in enumerate(group.runs, 1):
        shares = [
            overlap(run.retrieved, other.retrieved, k, gold) if {id(run), id(other)} <= deep else None
            for other in group.runs
        ]
        cells = [Cell(NONE if s is None else f"{s:.2f}", shade=s) for s in shares]
        rows.append((Cell(f"{n}. {run.label}"), *cells))
    passage = "any passage" if gold is None else "any gold passage"
    return Table(
        f"similarity-{'all' if gold is None else 'correct'}-{group.name}",
        f"Similarity of {'all' if gold is None else 'the correct'} predictions in the first {k}",
        ("run", *(str(n) for n in range(1, len(rows) + 1))),
        1,
        tuple(rows),
        "Jaccard overlap |A ∩ B| / |A ∪ B| of two runs' passages, 1 if they are the same, averaged over "
        f"the queries for which at least one of the two has {passage}; a dash where one was cut off before "
        f"{k}.",
        heat=True,
    )
