"""The tables of the paper for any runs, over one data set or several side by side.

Every function takes a list of groups, and names the table of arXiv 2204.13596 whose form it has. Joined rows:
:mod:`grls.report.rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from grls.evaluation.depth import shared_name
from grls.report.blocks import NONE, Column, Table, Value
from grls.report.measure import Measured, MeasuredGroup
from grls.report.rows import IDENTITY, Key, Rows, across, identity, steps, system
from grls.report.runs import members_of
from grls.runs.manifest import RunInfo


def recall_table(groups: Sequence[MeasuredGroup], ks: Sequence[int], k: int | None = None) -> Table | None:
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


def measures_table(groups: Sequence[MeasuredGroup]) -> Table | None:
    """The standard measures of every run; None without measures."""
    names = dict.fromkeys(name for g in groups for run in g.runs for name in run.report.get("measures", {}))
    if not names:
        return None
    return across(
        "measures",
        "Standard measures (%) of every run",
        IDENTITY,
        groups,
        lambda group: {identity(run): run.report["measures"] for run in group.runs},
        [(name, Column(name, best="" if _is_beyond_compare(name, groups) else "high")) for name in names],
        "By ir_measures, with the grades of the qrels, as trec_eval counts: nDCG: normalized discounted "
        "cumulative gain; RR: reciprocal rank; AP: average precision; P: precision; Judged: share of the "
        "first k that the qrels judge. RR and AP read all that a run holds, so no run is marked as the best "
        "where runs were cut off at various depths.",
    )


def _is_beyond_compare(measure: str, groups: Sequence[MeasuredGroup]) -> bool:
    """Whether no run is best in a measure: it says nothing of quality, or reads runs to various depths."""
    deep = [[run.reach for run in group.runs] for group in groups]
    return measure.startswith("Judged") or any(shared_name(measure, reaches) != measure for reaches in deep)


def memorisation_table(groups: Sequence[MeasuredGroup], ks: Sequence[int]) -> Table | None:
    """Generators with and without memorisation (as in tables 2 and 3); None if all are of one kind."""
    kinds = {"memorise" in info.stages for group in groups for info in _generators(group)}
    if len(kinds) < 2:
        return None

    def rows(group: MeasuredGroup) -> Rows:
        values: dict[Key, dict[str, Value]] = {}
        for run in group.runs:
            info = run.entry.info
            if info is not None and info in _generators(group):
                memorised = "memorised" if "memorise" in info.stages else "not memorised"
                values[run.label, steps(run), memorised] = {**run.report["sequence_recall"], "f1": _f1(run)}
        return values

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


def chains_table(groups: Sequence[MeasuredGroup]) -> Table | None:
    """Fixed beside dynamic multi-step, as sets (the form of table 3); None without multi-step runs."""

    def rows(group: MeasuredGroup) -> Rows:
        if all(run.chains is None for run in group.runs):
            return {}
        values = {identity(r): _chain_values(r) for r in group.runs if r.chains is not None or _by_hops(r)}
        gold: dict[str, Value] = {"length": fmean(map(len, group.gold))}
        return {**values, ("gold", NONE, NONE): gold}

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


def ensemble_table(groups: Sequence[MeasuredGroup], ks: Sequence[int]) -> Table | None:
    """Ensembles beside their members (the form of table 4); None without ensembles."""
    return across(
        "ensembles",
        "Ensembles and their members, sequence recall (%)",
        ("ensemble", "kind", "of"),
        groups,
        _ensembles,
        [(f"recall@{k}", Column(f"R@{k}")) for k in ks],
        "Homogeneous: all members are of one system. A member that is not among the runs has dashes. The "
        "best is marked for each ensemble.",
        within=0,
    )


def _generators(group: MeasuredGroup) -> list[RunInfo]:
    """The manifests of runs by a generator alone."""
    infos = [run.entry.info for run in group.runs]
    return [info for info in infos if info is not None and info.system == "generator"]


def _f1(run: Measured) -> Value:
    value: Value = run.report.get("set", {}).get("f1")
    return value


def _by_hops(run: Measured) -> bool:
    return run.entry.steps in ("fixed", "dynamic")


def _chain_values(run: Measured) -> dict[str, Value]:
    if run.chains is None:
        known: dict[str, Value] = run.report.get("set", {})
        return known
    done = run.report.get("done_missing", {}) if run.entry.steps == "dynamic" else {}
    return {**run.report["set"], **done, "length": fmean(map(len, run.chains))}


def _ensembles(group: MeasuredGroup) -> Rows:
    rows: dict[Key, Mapping[str, Value]] = {}
    for run in group.runs:
        info = run.entry.info
        if info is None or info.system != "ensemble":
            continue
        runs = {id(other.entry): other for other in group.runs}
        linked = members_of(run.entry, [other.entry for other in group.runs])
        members = [(name, None if member is None else runs[id(member)]) for name, member in linked]
        systems = {system(m) for _, m in members if m is not None}
        known = bool(members) and all(m is not None and system(m) != NONE for _, m in members)
        kind = NONE if not known else "homogeneous" if len(systems) == 1 else "mixed"
        rows[run.label, kind, "all together"] = run.report["sequence_recall"]
        for name, member in members:
            key = (run.label, kind, f"member {name if member is None else member.label}")
            rows[key] = {} if member is None else member.report["sequence_recall"]
    return rows
