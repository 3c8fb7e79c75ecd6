"""The tables of the paper, for whatever runs there are, over one data set or several side by side.

Each takes a list of groups: with several, a data set is a group of columns. A row is a run; runs of different
data sets share a row where system, name and steps are the same. Every function says which table of arXiv
2204.13596 it has the form of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from grls.evaluation.graph import GraphErrors
from grls.report.blocks import NONE, Column, Row, Table, Value, value_table
from grls.report.measure import Measured, MeasuredGroup
from grls.report.runs import STEPS, SYSTEMS, place_of

Key = tuple[str, ...]
Rows = Mapping[Key, Mapping[str, Value]]
"""What heads a row -> metric -> value, of one data set."""

_IDENTITY = ("run", "system", "steps")
_ERRORS = {"done_missing", *GraphErrors._fields}  # lower is better
_REACH = (
    "A single-step or pooled run that was cut off before k has no R@k (a dash), and neither has a run that "
    "does not say what it is where k is beyond its longest list; a chain ends where it ends and keeps its "
    "value."
)


def system(run: Measured) -> str:
    """The kind of retriever, as the page names it."""
    return SYSTEMS.get(run.entry.system, NONE)


def steps(run: Measured) -> str:
    """Single, fixed or dynamic; a dash where that is not known."""
    return run.entry.steps or NONE


def recall_table(groups: Sequence[MeasuredGroup], ks: Sequence[int]) -> Table | None:
    """Recall of every run (the form of Table 2)."""
    return _across(
        "recall",
        "Sequence recall (%) of every run, single-step and multi-step",
        _IDENTITY,
        groups,
        lambda group: {_identity(run): run.report["sequence_recall"] for run in group.runs},
        [(f"recall@{k}", Column(f"R@{k}")) for k in ks],
        "R@k: share of a query's gold passages among the first k retrieved, averaged over judged queries. "
        + _REACH,
    )


def memorisation_table(groups: Sequence[MeasuredGroup], ks: Sequence[int]) -> Table | None:
    """Generators with and without memorisation (the form of Table 3); None where there are none."""

    def rows(group: MeasuredGroup) -> Rows:
        found: dict[Key, dict[str, Value]] = {}
        for run in group.runs:
            info = run.entry.info
            if info is not None and info.system == "generator":
                memorised = "memorised" if "memorise" in info.stages else "not memorised"
                found[run.label, steps(run), memorised] = {**run.report["sequence_recall"], "f1": _f1(run)}
        return found

    return _across(
        "memorisation",
        "Generators with and without memorisation of the corpus (%)",
        ("run", "steps", "corpus"),
        groups,
        rows,
        [*((f"recall@{k}", Column(f"R@{k}")) for k in ks), ("f1", Column("set F1"))],
        "Memorised: the manifest names that stage. The best is marked among runs of the same steps. "
        + _REACH,
        within=1,
    )


def chains_table(groups: Sequence[MeasuredGroup]) -> Table | None:
    """Fixed beside dynamic multi-step, as sets (the form of Table 4); None where no run goes hop by hop."""

    def rows(group: MeasuredGroup) -> Rows:
        if all(run.chains is None for run in group.runs):
            return {}
        found = {_identity(r): _chain_values(r) for r in group.runs if r.chains is not None or _by_hops(r)}
        gold: dict[str, Value] = {"length": fmean(map(len, group.gold))}
        return {**found, ("gold", NONE, NONE): gold}

    columns = [
        ("precision", Column("precision")),
        ("recall", Column("recall")),
        ("f1", Column("set F1")),
        ("done_missing", Column("DONE missing", best="low")),
        ("length", Column("mean length", "number", "")),
    ]
    return _across(
        "chains",
        "Fixed and dynamic multi-step retrieval, chains taken as sets (%)",
        _IDENTITY,
        groups,
        rows,
        columns,
        "Averages of each query's precision, recall and F1. DONE missing: share of dynamic chains that ended "
        "without DONE. Mean length: passages in a chain. A run that pools the passages of several chains is "
        "a ranking and has dashes, and so has an ensemble of fixed runs that are not all here to tell.",
    )


def ensemble_table(groups: Sequence[MeasuredGroup], ks: Sequence[int]) -> Table | None:
    """Ensembles beside their members (the form of Table 5); None where there are none."""
    return _across(
        "ensembles",
        "Ensembles and their members, sequence recall (%)",
        ("ensemble", "kind", "of"),
        groups,
        _ensembles,
        [(f"recall@{k}", Column(f"R@{k}")) for k in ks],
        "Homogeneous: all members are of one system. A member that is not among the runs has dashes. The "
        "best is marked for each ensemble. " + _REACH,
        within=0,
    )


def section_tables(groups: Sequence[MeasuredGroup], left_out: Sequence[str]) -> list[tuple[str, Table]]:
    """(section, table) of every section of the evaluation, whatever it holds.

    Args:
        groups: The data sets.
        left_out: Sections that stand elsewhere.
    """
    names = dict.fromkeys(s for group in groups for run in group.runs for s in run.report)
    tables = ((name, _section_table(groups, name)) for name in names if name not in left_out)
    return [(name, table) for name, table in tables if table is not None]


def run_table(groups: Sequence[MeasuredGroup]) -> Table:
    """What was run: the facts of the manifests."""
    heads = (
        "stages", "members", "score mode", "seconds", "queries/s",
        "judged", "unanswered", "not judged", "options", "file",
    )  # fmt: skip
    counts = {"judged": "count", "unanswered": "count", "not judged": "count"}
    columns = [
        Column(h, "count" if h in counts else "number" if h in ("seconds", "queries/s") else "text", "")
        for h in heads
    ]
    rows: list[Row] = [
        ((*_identity(run), group.group.name, group.group.split), _facts(run))
        for group in groups
        for run in group.runs
    ]
    return value_table(
        "runs",
        "Every run, with the facts of its manifest",
        (*_IDENTITY, "data set", "split"),
        columns,
        rows,
        "Judged: queries of the split that have judgements. Unanswered: those for which the run has no "
        "passage; they score 0. Not judged: queries of the run outside the split; they are left out.",
    )


def _facts(run: Measured) -> list[Value]:
    info, counts = run.entry.info, run.report["queries"]
    rest: list[Value] = [counts["judged"], counts["unanswered"], counts["unjudged"]]
    mode = run.entry.results.score_mode
    if info is None:
        return [None, None, mode, None, None, *rest, "no manifest", str(run.entry.file)]
    asked = len(run.entry.results.rankings)
    options = ", ".join(f"{key}={value}" for key, value in info.options.items() if value is not None)
    return [
        " + ".join(info.stages),
        " + ".join(info.members),
        info.score_mode,
        info.seconds or None,
        asked / info.seconds if info.seconds else None,
        *rest,
        options,
        str(run.entry.file),
    ]


def _identity(run: Measured) -> Key:
    return run.label, system(run), steps(run)


def _f1(run: Measured) -> Value:
    value: Value = run.report.get("set", {}).get("f1")
    return value


def _by_hops(run: Measured) -> bool:
    return run.entry.steps in ("fixed", "dynamic")


def _chain_values(run: Measured) -> dict[str, Value]:
    if run.chains is None:
        return {}
    done = run.report.get("done_missing", {}) if run.entry.steps == "dynamic" else {}
    return {**run.report["set"], **done, "length": fmean(map(len, run.chains))}


def _ensembles(group: MeasuredGroup) -> Rows:
    found: dict[Key, Mapping[str, Value]] = {}
    for run in group.runs:
        info = run.entry.info
        if info is None or info.system != "ensemble":
            continue
        members = [(name, _member(group, name)) for name in info.members]
        systems = {system(m) for _, m in members if m is not None}
        known = bool(members) and all(m is not None and system(m) != NONE for _, m in members)
        kind = NONE if not known else "homogeneous" if len(systems) == 1 else "mixed"
        found[run.label, kind, "all together"] = run.report["sequence_recall"]
        for name, member in members:
            key = (run.label, kind, f"member {name if member is None else member.label}")
            found[key] = {} if member is None else member.report["sequence_recall"]
    return found


def _member(group: MeasuredGroup, name: str) -> Measured | None:
    """The run that an ensemble calls ``name``: by label, name, or file."""
    return next((run for run in group.runs if run.entry.goes_by(name)), None)


def _section_table(groups: Sequence[MeasuredGroup], name: str) -> Table | None:
    found = [run.report[name] for group in groups for run in group.runs if name in run.report]
    if not all(isinstance(values, dict) for values in found):
        return None  # not a section of metrics
    metrics = list(dict.fromkeys(metric for values in found for metric in values))
    return _across(
        name.replace("_", "-"),
        f"{spoken(name).capitalize()} (%)",
        _IDENTITY,
        groups,
        lambda group: {_identity(run): run.report.get(name, {}) for run in group.runs},
        [(metric, _column(metric)) for metric in metrics],
        " ".join([_NOTES.get(name, ""), _REACH if any("@" in metric for metric in metrics) else ""]).strip(),
    )


_NOTES = {
    "seen_unseen": "Seen: gold passages that are gold of a training query, too; unseen: the others. Each is "
    "averaged over the queries that have gold of that kind; their numbers stand beside.",
    "graph": "Success: the chain proves the goal. The other columns are the rates of each error, and one "
    "chain may have several: lower is better.",
    "answer_recall": "Share of queries with an accepted answer in the text of the first k passages.",
}


def spoken(name: str) -> str:
    """The name of a section or metric in words."""
    return {
        "seen_unseen": "recall of seen and unseen gold",
        "graph": "success and error rates of proof graphs",
    }.get(name, name.replace("_", " "))


def _column(metric: str) -> Column:
    if metric == "queries" or metric.endswith("_queries"):
        return Column(spoken(metric), "count", "")
    head = spoken(metric).replace("recall@", "R@")
    return Column(head, "percent", "low" if metric in _ERRORS else "high")


def _across(
    name: str,
    caption: str,
    stubs: Sequence[str],
    groups: Sequence[MeasuredGroup],
    rows_of: Callable[[MeasuredGroup], Rows],
    metrics: Sequence[tuple[str, Column]],
    note: str,
    within: int | None = None,
) -> Table | None:
    """A table whose rows are joined over data sets by what heads them; None where there is no row."""
    found = [rows_of(group) for group in groups]
    groups = [group for group, rows in zip(groups, found, strict=True) if rows]
    found = [rows for rows in found if rows]
    keys = sorted(dict.fromkeys(key for rows in found for key in rows), key=_place(stubs, within))
    if not keys:
        return None
    several = len(groups) > 1
    columns = [c._replace(group=g.group.name if several else "") for g in groups for _, c in metrics]
    table = [
        (key, [rows.get(key, {}).get(metric) for rows in found for metric, _ in metrics]) for key in keys
    ]
    suffix = "all" if several else groups[0].group.name
    return value_table(f"{name}-{suffix}", caption, stubs, columns, table, note, within)


def _place(stubs: Sequence[str], within: int | None) -> Callable[[Key], tuple[Any, ...]]:
    """The order of rows: by system and steps as the paper has them, else as the runs were given."""

    def place(key: Key) -> tuple[Any, ...]:
        named = dict(zip(stubs, key, strict=True))
        if "ensemble" in named:
            return (0,)
        return (
            named["run"] == "gold",
            place_of(named.get("system"), [*SYSTEMS.values()]) if within is None else 0,
            place_of(named.get("steps"), STEPS),
            named.get("corpus", ""),
        )

    return place
