"""The tables of the paper for any runs, over one data set or several side by side.

Every function takes a list of groups, and names the table of arXiv 2204.13596 whose form it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from grls.evaluation.measures import shared_name
from grls.evaluation.significance import CONFIDENCE, Comparison, compare_with, shown_p, shown_points
from grls.io.progress import counted
from grls.report.blocks import NONE, Cell, Column, Table, Value, value_table
from grls.report.runs import STEPS, SYSTEMS, DataGroup, ScoredRun, members_of, rank_of


def recall_table(groups: Sequence[DataGroup], ks: Sequence[int], k: int | None = None) -> Table | None:
    """Recall of every run (the form of table 2); with k the rows are sorted by recall@k, best first."""
    return across(
        "recall",
        "Sequence recall (%) of every run, single-step and multi-step",
        IDENTITY,
        groups,
        lambda group: {identity(run): run.report["sequence_recall"] for run in group.runs},
        [(f"recall@{k}", Column(f"R@{k}")) for k in ks],
        "R@k: share of a query's gold passages among the first k retrieved, averaged over judged queries.",
        by=None if k is None else f"recall@{k}",
    )


def measures_table(groups: Sequence[DataGroup]) -> Table | None:
    names = dict.fromkeys(name for g in groups for run in g.runs for name in run.report.get("measures", {}))
    if not names:
        return None
    best: dict[str, Literal["high", ""]] = {}
    for name in names:  # in some no run is best: they say nothing of quality, or read runs to various depths
        shared = [shared_name(name, [run.reach for run in group.runs]) for group in groups]
        best[name] = "" if name.startswith("Judged") or any(other != name for other in shared) else "high"
    return across(
        "measures",
        "Standard measures (%) of every run",
        IDENTITY,
        groups,
        lambda group: {identity(run): run.report["measures"] for run in group.runs},
        [(name, Column(name, best=best[name])) for name in names],
        "By ir_measures, with the grades of the qrels, as trec_eval counts: nDCG: normalized discounted "
        "cumulative gain; RR: reciprocal rank; AP: average precision; P: precision; Judged: share of the "
        "first k that the qrels judge. RR and AP read all that a run holds, so no run is marked as the best "
        "where runs were cut off at various depths.",
    )


def memorisation_table(groups: Sequence[DataGroup], ks: Sequence[int]) -> Table | None:
    """Generators with and without memorisation (as in tables 2 and 3); None if all are of one kind."""

    def rows(group: DataGroup) -> Rows:
        values: dict[Key, dict[str, Value]] = {}
        for run in group.runs:
            if run.info is not None and run.system == "generator":
                memorised = "memorised" if "memorise" in run.info.stages else "not memorised"
                f1 = run.report.get("set", {}).get("f1")
                values[run.label, steps(run), memorised] = {**run.report["sequence_recall"], "f1": f1}
        return values

    if len({key[2] for group in groups for key in rows(group)}) < 2:
        return None

    return across(
        "memorisation",
        "Generators with and without memorisation of the corpus (%)",
        ("run", "steps", "corpus"),
        groups,
        rows,
        [*((f"recall@{k}", Column(f"R@{k}")) for k in ks), ("f1", Column("set F1"))],
        "Memorised: the manifest names that stage. The best is marked among runs of the same steps.",
        within=1,
    )


def chains_table(groups: Sequence[DataGroup]) -> Table | None:
    """Fixed beside dynamic multi-step, as sets (the form of table 3); None without multi-step runs."""

    def rows(group: DataGroup) -> Rows:
        if all(run.chains is None for run in group.runs):
            return {}
        values: dict[Key, Mapping[str, Value]] = {}
        for run in group.runs:
            if run.chains is not None:
                done = run.report.get("done_missing", {}) if run.steps == "dynamic" else {}
                length = fmean(map(len, run.chains))
                values[identity(run)] = {**run.report["set"], **done, "length": length}
            elif run.steps in ("fixed", "dynamic"):
                values[identity(run)] = run.report.get("set", {})
        return {**values, ("gold", NONE, NONE): {"length": fmean(map(len, group.gold))}}

    columns = [
        ("precision", Column("precision")),
        ("recall", Column("recall")),
        ("f1", Column("set F1")),
        ("f1_known_number", Column("set F1, known number")),
        ("done_missing", Column("DONE missing", best="low")),
        ("length", Column("mean length", "number", "")),
    ]
    return across(
        "chains",
        "Fixed and dynamic multi-step retrieval, chains taken as sets (%)",
        IDENTITY,
        groups,
        rows,
        columns,
        "Averages of each query's precision, recall and F1. Set F1, known number: of the first n passages, "
        "for n gold passages; a chain that ended before them stays short. DONE missing: share of dynamic "
        "chains that ended without DONE. Mean length: passages in a chain. A run that pools the passages of "
        "several chains is a ranking and has only set F1 with the known number; so has an ensemble of fixed "
        "runs if some members are missing here.",
    )


def ensemble_table(groups: Sequence[DataGroup], ks: Sequence[int]) -> Table | None:
    """Ensembles beside their members (the form of table 4); None without ensembles."""

    def rows_of(group: DataGroup) -> Rows:
        rows: dict[Key, Mapping[str, Value]] = {}
        for run in group.runs:
            if run.system != "ensemble":
                continue
            members = members_of(run, group.runs)
            systems = {system(m) for _, m in members if m is not None}
            known = bool(members) and all(m is not None and system(m) != NONE for _, m in members)
            kind = NONE if not known else "homogeneous" if len(systems) == 1 else "mixed"
            rows[run.label, kind, "all together"] = run.report["sequence_recall"]
            for name, member in members:
                key = (run.label, kind, f"member {name if member is None else member.label}")
                rows[key] = {} if member is None else member.report["sequence_recall"]
        return rows

    return across(
        "ensembles",
        "Ensembles and their members, sequence recall (%)",
        ("ensemble", "kind", "of"),
        groups,
        rows_of,
        [(f"recall@{k}", Column(f"R@{k}")) for k in ks],
        "Homogeneous: all members are of one system. A member that is not among the runs has dashes. The "
        "best is marked for each ensemble.",
        within=0,
    )


Key = tuple[str, ...]
Rows = Mapping[Key, Mapping[str, Value]]
"""Heading cells of a row -> metric -> value, for one data set."""

IDENTITY = ("run", "system", "steps")
"""Headings of the cells of :func:`identity`."""

REACH = (
    "A ranking that was cut off before k has no value at k; lists that are whole and chains that end keep "
    "their value beyond their end."
)
"""What a dash in a column of cut-off k means; a page says it once."""


def system(run: ScoredRun) -> str:
    return SYSTEMS.get(run.system, NONE)


def steps(run: ScoredRun) -> str:
    return run.steps or NONE


def identity(run: ScoredRun) -> Key:
    return run.label, system(run), steps(run)


def across(
    name: str,
    caption: str,
    stubs: Sequence[str],
    groups: Sequence[DataGroup],
    rows_of: Callable[[DataGroup], Rows],
    metrics: Sequence[tuple[str, Column]],
    note: str,
    within: int | None = None,
    by: str | None = None,
) -> Table | None:
    """A table with a group of columns for each data set; None without a row.

    Rows of several data sets are one if their heading cells are equal. With ``by``, rows are sorted by
    their mean of that metric, best first.
    """
    filled = [(group, rows) for group in groups if (rows := rows_of(group))]
    groups, rows_by_group = [group for group, _ in filled], [rows for _, rows in filled]

    def order(key: Key) -> tuple[Any, ...]:
        named = dict(zip(stubs, key, strict=True))
        if "ensemble" in named:
            return (0,)
        return (
            named["run"] == "gold",
            rank_of(named.get("system"), [*SYSTEMS.values()]) if within is None else 0,
            rank_of(named.get("steps"), STEPS),
            named.get("corpus", ""),
        )

    keys = sorted(dict.fromkeys(key for rows in rows_by_group for key in rows), key=order)
    if not keys:
        return None
    if by is not None:
        means = {}
        for key in keys:
            values = [rows.get(key, {}).get(by) for rows in rows_by_group]
            numbers = [value for value in values if isinstance(value, int | float)]
            means[key] = fmean(numbers) if numbers else -1.0  # below every measure
        keys.sort(key=lambda key: -means[key])
    several = len(groups) > 1
    columns = [c._replace(group=g.name if several else "") for g in groups for _, c in metrics]
    table = [
        (key, [rows.get(key, {}).get(metric) for rows in rows_by_group for metric, _ in metrics])
        for key in keys
    ]
    suffix = "all" if several else groups[0].name
    return value_table(f"{name}-{suffix}", caption, stubs, columns, table, note, within)


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
