"""Tables of all other metrics of the evaluation, under any name, and of the manifests' facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grls.evaluation.graph import GraphErrors
from grls.evaluation.labels import measure_label
from grls.report.blocks import Column, Row, Table, Value, printed, value_table
from grls.report.measure import Measured, MeasuredGroup
from grls.report.rows import IDENTITY, Rows, across, identity

_ERRORS = {"done_missing", *GraphErrors._fields}  # lower is better
_FEW = 30  # queries below which an average is marked
_NOTES = {
    "seen_unseen": "Seen: gold passages that are also gold of a training query; unseen: the others. Each is "
    "averaged over the queries with gold passages of that kind; the table has their numbers. In parentheses: "
    "over fewer than 30 queries, so the value is uncertain. All unseen: queries without a seen gold passage; "
    "their share is the paper's unseen rate.",
    "graph": "Success: the chain proves the goal; each use of a statement consumes it, and no statement is "
    "left over (algorithm 3 of arXiv 2204.13596). The other columns are error rates (lower is better); a "
    "chain counts under the first check that it fails.",
    "graph_reuse": "The same checks, but a statement may feed several rules; a chain counts under every "
    "check that it fails.",
    "by_type": "By the field `type` of the questions' metadata; the best is marked within a type. In "
    "parentheses: over fewer than 30 queries, so the value is uncertain.",
    "answer_recall": "Share of queries with an accepted answer in the text of the first k passages.",
}


def section_tables(groups: Sequence[MeasuredGroup], left_out: Sequence[str]) -> list[tuple[str, Table]]:
    """(section, table) of every section of the evaluation.

    Args:
        groups: The data sets.
        left_out: Sections to leave out, because the page shows them elsewhere.
    """
    names = dict.fromkeys(s for group in groups for run in group.runs for s in run.report)
    tables = ((name, _section_table(groups, name)) for name in names if name not in left_out)
    return [(name, table) for name, table in tables if table is not None]


def run_table(groups: Sequence[MeasuredGroup], place: str | Path | None = None) -> Table:
    """The runs with the facts of their manifests; files below ``place`` are named from there."""
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
        ((*identity(run), group.group.name, group.group.split), _facts(run, place))
        for group in groups
        for run in group.runs
    ]
    return value_table(
        "runs",
        "Every run, with the facts of its manifest",
        (*IDENTITY, "data set", "split"),
        columns,
        rows,
        "Judged: queries of the split that have judgements. Unanswered: those for which the run has no "
        "passage; they score 0. Not judged: queries of the run outside the split; they are left out.",
    )


def _facts(run: Measured, place: str | Path | None) -> list[Value]:
    file = run.entry.file
    if place is not None and file.is_relative_to(place):
        file = file.relative_to(place)
    info, counts = run.entry.info, run.report["queries"]
    rest: list[Value] = [counts["judged"], counts["unanswered"], counts["unjudged"]]
    mode = run.entry.run.score_mode
    if info is None:
        return [None, None, mode, None, None, *rest, "no manifest", str(file)]
    asked = len(run.entry.run.rankings)
    options = ", ".join(f"{key}={value}" for key, value in info.options.items() if value is not None)
    return [
        " + ".join(info.stages),
        " + ".join(info.members),
        info.score_mode,
        info.seconds or None,
        asked / info.seconds if info.seconds else None,
        *rest,
        options,
        str(file),
    ]


def _section_table(groups: Sequence[MeasuredGroup], name: str) -> Table | None:
    sections = [run.report[name] for group in groups for run in group.runs if name in run.report]
    if not all(isinstance(values, dict) for values in sections):
        return None  # not a section of metrics
    typed = name == "by_type"
    if typed:
        sections = [values for section in sections for values in section.values()]
    metrics = list(dict.fromkeys(metric for values in sections for metric in values))

    def rows(group: MeasuredGroup) -> Rows:
        if not typed:
            return {identity(run): _shown(run.report.get(name, {})) for run in group.runs}
        return {
            (*identity(run), kind): _shown(values, ("",) if values["queries"] < _FEW else ())
            for run in group.runs
            for kind, values in run.report.get(name, {}).items()
        }

    return across(
        name.replace("_", "-"),
        f"{spoken(name).capitalize()} (%)",
        (*IDENTITY, "type") if typed else IDENTITY,
        groups,
        rows,
        [(metric, _column(metric)) for metric in metrics],
        _NOTES.get(name, ""),
        within=len(IDENTITY) if typed else None,
    )


def _shown(values: Mapping[str, Value], more: Sequence[str] = ()) -> Mapping[str, Value]:
    """Values of a section; those over few queries (as ``seen_queries`` counts them) in parentheses.

    Args:
        values: Metric -> value.
        more: How further metrics begin that are over few queries.
    """
    few = {
        metric.removesuffix("queries")
        for metric, count in values.items()
        if metric.endswith("_queries") and isinstance(count, int) and count < _FEW
    } | set(more)
    return {
        metric: f"({printed(value, 'percent')})"
        if isinstance(value, float) and any(metric.startswith(part) for part in few)
        else value
        for metric, value in values.items()
    }


def spoken(name: str) -> str:
    """The name of a section or metric in words."""
    return {
        "seen_unseen": "recall of seen and unseen gold",
        "graph": "success and error rates of proof graphs",
        "graph_reuse": "success and error rates of proof graphs, statements used again",
        "by_type": "scores by the type of a question",
    }.get(name) or measure_label(name)


def _column(metric: str) -> Column:
    if metric == "queries" or metric.endswith("_queries"):
        return Column(spoken(metric), "count", "")
    head = spoken(metric).replace("recall@", "R@")
    return Column(head, "percent", "low" if metric in _ERRORS else "high")
