"""The table of an experiment: systems beside each other on the same queries, and what others have published.

A system has runs that differ in their seed: its value of a query is their mean. Differences are paired by
query (:mod:`grls.evaluation.significance`). Quoted rows take part in no test.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, NamedTuple

import pandas as pd

from grls.errors import ConfigError, DataError
from grls.evaluation.measures import measure_names, shared_name
from grls.evaluation.significance import LEVEL, Comparison, compare_with, shown_p, shown_points
from grls.io.arguments import options
from grls.io.files import read_json
from grls.io.progress import counted
from grls.report.blocks import NONE, Cell, Table, two_digits
from grls.report.runs import DataGroup
from grls.retrieve.spec import from_record

log = logging.getLogger(__name__)

_COSTS = {
    "seconds": "seconds a query",
    "tokens": "tokens a query",
    "index_seconds": "seconds to index",
}
"""Cost -> its heading."""


class SystemRun(NamedTuple):
    """A run of a system.

    Attributes:
        values: Measure -> one value a query, without measures that read deeper than the run.
        hops: ``H1``, ``H2``, … -> hits of that hop; empty for a system without hops.
        costs: The known costs: ``seconds`` a query, ``tokens`` a query that language models computed,
            ``index_seconds`` that its index took.
    """

    values: Mapping[str, Sequence[float]]
    hops: Mapping[str, float] = {}
    costs: Mapping[str, float] = {}


class SystemScores(NamedTuple):
    """The means of a system, shares of 1; text, Markdown and LaTeX show them in points (percent).

    Attributes:
        means: Measure -> its mean over the queries; without measures that are unknown.
        differences: Measure -> comparison with the baseline; empty for the baseline, or without one.
        p: Measure -> p of the difference, by Holm's correction for all systems that are compared.
        costs: Those that are known of all its runs; see :class:`SystemRun`.
        hops: ``H1``, ``H2``, … -> hits of that hop.
        spread: Measure -> standard deviation over the runs of the system; empty for a single run.
        source: Where the row is quoted from; empty: it was measured.
    """

    name: str
    means: dict[str, float]
    differences: dict[str, Comparison]
    p: dict[str, float]
    costs: Mapping[str, float] = {}
    hops: Mapping[str, float] = {}
    spread: Mapping[str, float] = {}
    source: str = ""

    @property
    def seconds(self) -> float | None:
        """Seconds a query; None: unknown."""
        return self.costs.get("seconds")


def compare_systems(
    systems: Mapping[str, Sequence[SystemRun]], baseline: str | None
) -> tuple[SystemScores, ...]:
    """The means of each system, and in each measure the difference to the ``baseline``, if there is one.

    All systems have runs over the same queries in the same order.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for name, runs in systems.items():
        known = [measure for measure in runs[0].values if all(measure in run.values for run in runs)]
        values[name] = {m: [*map(fmean, zip(*(r.values[m] for r in runs), strict=True))] for m in known}
    differences: dict[str, dict[str, Comparison]] = {name: {} for name in systems}
    corrected: dict[str, dict[str, float]] = {name: {} for name in systems}
    for measure, scores in values[baseline].items() if baseline is not None else ():
        others = {n: v[measure] for n, v in values.items() if n != baseline and measure in v}
        for name, (comparison, p) in compare_with(scores, others).items():
            differences[name][measure], corrected[name][measure] = comparison, p
    rows = []
    for name, runs in systems.items():
        spread = {m: stdev(fmean(run.values[m]) for run in runs) for m in values[name]} if runs[1:] else {}
        hops = _means([run.hops for run in runs])
        rows.append(
            SystemScores(
                name,
                {measure: fmean(numbers) for measure, numbers in values[name].items()},
                differences[name],
                corrected[name],
                _means([run.costs for run in runs]),
                hops,
                spread,
            )
        )
    return tuple(rows)


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each value that all runs have."""
    return {name: fmean(run[name] for run in runs) for name in runs[0] if all(name in run for run in runs)}


@dataclass(frozen=True, repr=False)
class ExperimentTable:
    """The table of an experiment; it prints itself.

    Attributes:
        rows: What each system scored, and quoted rows.
        baseline: The name of the system that the others are compared with; None: no comparison.
        k: Hits of each query; None: various.
        data: The data set and its split; empty: not named.
    """

    measures: tuple[str, ...]
    rows: tuple[SystemScores, ...]
    baseline: str | None
    k: int | None
    queries: int
    data: str = ""

    def __getitem__(self, name: str) -> SystemScores:
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise KeyError(f"{name!r} is none of the systems {', '.join(rows)}")
        return rows[name]

    def __repr__(self) -> str:
        return self.table().text()

    def table(self, compact: bool = False) -> Table:
        """The table as text, means and differences in points.

        ``compact``, for a paper: without costs, and with a mark in place of differences and p.
        """
        hits = "" if self.k is None else f", {counted(self.k, 'hit')} each"
        caption = f"{f'{self.data}: ' if self.data else ''}{counted(self.queries, 'query')}{hits}; "
        caption += "measures in points"
        if self.baseline is not None:
            differs = f"† differs from {self.baseline}, p < {LEVEL}" if compact else ""
            differs = differs or f"difference to {self.baseline}, and its p"
            caption += f"; {differs} by Holm's correction"
        if any(row.spread for row in self.rows):
            caption += "; ±: standard deviation over seeds"
        compared = [] if self.baseline is None or compact else ["diff.", "p"]
        hops = sorted({hop for row in self.rows for hop in row.hops}, key=lambda hop: int(hop[1:]))
        shown = {c: h for c, h in _COSTS.items() if any(c in row.costs for row in self.rows)}
        shown = {} if compact else shown
        quoted = any(row.source for row in self.rows)
        heads = ["system", *(head for name in self.measures for head in (name, *compared)), *hops]
        heads += [*shown.values(), *(["source"] if quoted else [])]
        texts = {m: [f"{100 * r.means[m]:.1f}" for r in self.rows if m in r.means] for m in self.measures}
        best = {m: max(means, key=float) for m, means in texts.items() if len({*means}) > 1}
        rows = []
        for row in self.rows:
            cells = [Cell(row.name)]
            for name in self.measures:
                mean = f"{100 * row.means[name]:.1f}" if name in row.means else NONE
                spread = f" ± {100 * row.spread[name]:.1f}" if name in row.spread else ""
                mark = "†" * (compact and row.p.get(name, 1.0) < LEVEL)
                cells.append(Cell(mean + spread + mark, strong=mean == best.get(name)))
                if compared and name in row.differences:
                    p = row.p[name]
                    cells += [Cell(shown_points(row.differences[name].difference))]
                    cells += [Cell(shown_p(p), strong=p < LEVEL)]
                elif compared:
                    cells += [Cell(""), Cell("")]
            cells += [Cell(f"{100 * row.hops[hop]:.1f}" if hop in row.hops else NONE) for hop in hops]
            for cost in shown:
                cells.append(Cell(two_digits(row.costs[cost]) if cost in row.costs else NONE))
            rows.append((*cells, *([Cell(row.source or "measured here")] if quoted else [])))
        return Table(f"systems {self.data}".strip(), caption, tuple(heads), 1, tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """All values, ready for JSON; those of quoted rows have their ``source``."""
        systems: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            compared = {m: {**d._asdict(), "p_holm": row.p[m]} for m, d in row.differences.items()}
            known = {"hops": row.hops, "spread": row.spread}
            systems[row.name] = {"means": row.means, "differences": compared, "seconds": None, **row.costs}
            systems[row.name] |= {name: value for name, value in known.items() if value}
            systems[row.name] |= {"source": row.source} if row.source else {}
        return {"baseline": self.baseline, "k": self.k, "queries": self.queries, "systems": systems}

    def to_frame(self) -> pd.DataFrame:
        """The values as a data frame of pandas, one row a system.

        Columns: each measure; with a baseline also ``<measure> difference`` and ``<measure> p``; ``seconds``.
        """
        records: dict[str, dict[str, float | None]] = {}
        for row in self.rows:
            values: dict[str, float | None] = {}
            for name in self.measures:
                values[name] = row.means.get(name)
                if self.baseline is not None:
                    compared = row.differences.get(name)
                    values[f"{name} difference"] = None if compared is None else compared.difference
                    values[f"{name} p"] = row.p.get(name)
            records[row.name] = {**values, "seconds": row.seconds}
        return pd.DataFrame.from_dict(records, orient="index", dtype=float).rename_axis("system")

    def csv(self) -> str:
        """The :meth:`to_frame` as CSV; quoted rows end with their source."""
        more: dict[str, list[Any]] = {
            name: [row.costs.get(name) for row in self.rows] for name in ("tokens", "index_seconds")
        }
        more["source"] = [row.source for row in self.rows]
        return str(self.to_frame().assign(**more).to_csv())


def systems_table(
    group: DataGroup,
    systems: Mapping[str, str],
    measures: Sequence[str],
    baseline: str | None = None,
    quoted: Quoted | None = None,
) -> ExperimentTable:
    """The table of the runs of a data set.

    ``systems``: label of a run -> its system, in the order of the rows. ``baseline``: None takes the best
    system by the first measure.
    """
    by_label = {run.label: run for run in group.runs}
    called = {name: shared_name(name, [run.depth for run in group.runs]) for name in measures}
    first = called[measures[0]]
    runs: dict[str, list[SystemRun]] = {}
    for label, system in systems.items():
        if label not in by_label:
            continue
        run = by_label[label]
        values = {}
        for name, shown in called.items():
            if (numbers := group.values(run, name)) is not None:
                values[shown] = numbers
        hops = {
            hop: hits
            for hop, hits in run.report.get("hops", {}).items()
            if hop[1:].isdecimal() and hits is not None
        }
        info, count = run.info, len(run.run.rankings)
        costs = {}
        if info is not None and count:
            if info.seconds:
                costs["seconds"] = info.seconds / count
            if info.computed_tokens is not None:
                costs["tokens"] = info.computed_tokens / count
            if info.index_seconds is not None:
                costs["index_seconds"] = info.index_seconds
        runs.setdefault(system, []).append(SystemRun(values, hops, costs))
    if len(runs) < 2:
        baseline = None
    elif baseline not in runs:
        alone = compare_systems(runs, None)
        baseline = max(alone, key=lambda row: row.means.get(first, -1.0)).name
    rows = compare_systems(runs, baseline)
    if quoted is not None:
        quoted.tell_counts(len(group.gold), len(group.runs[0].judged.corpus))
        rows += quoted.rows
    data = f"{group.name}, {group.split}"
    return ExperimentTable(tuple(called.values()), rows, baseline, None, len(group.gold), data)


class Quoted(NamedTuple):
    """Rows of others, and how many ``queries`` and ``passages`` their set has, where that is known."""

    rows: tuple[SystemScores, ...]
    counts: Mapping[str, int]
    file: Path

    def tell_counts(self, queries: int, passages: int) -> None:
        for name, number in (("queries", queries), ("passages", passages)):
            if self.counts.get(name, number) != number:
                log.warning(
                    "%s: its figures are over %s %s, and this data set has %s: rows are not comparable.",
                    self.file, f"{self.counts[name]:,}", name, f"{number:,}",
                )  # fmt: skip


@options()
class QuotedRow:
    """A row of a paper: a system, measures in percent, paper and table, and what a reader must know."""

    system: str
    points: dict[str, Annotated[float, "[0, 100]"]]
    source: str
    setting: str = ""


@options()
class QuotedSet:
    """Rows over a set, and how many queries and passages it has; None: not known."""

    set: str
    rows: list[dict[str, Any]]
    queries: int | None = None
    passages: int | None = None


def read_quoted(path: str | Path) -> Quoted:
    """Read rows of others from a JSON file, a :class:`QuotedSet` of each a :class:`QuotedRow`."""
    file = Path(path)
    content = from_record(QuotedSet, read_json(file), file, "the file")
    rows: dict[str, SystemScores] = {}
    for number, record in enumerate(content.rows, 1):
        row = from_record(QuotedRow, record, file, f"row {number}")
        if (name := f"{row.system} (quoted)") in rows:
            raise DataError(f"row {number}: the system {row.system!r} is there already; rename one.", file)
        try:
            measures = measure_names([*row.points])
        except ConfigError as error:
            raise DataError(f"row {number}: {error.text}", file) from None
        means = {m: value / 100 for m, value in zip(measures, row.points.values(), strict=True)}
        source = "; ".join(filter(None, (row.source, row.setting)))
        rows[name] = SystemScores(name, means, {}, {}, source=source)
    counts = {"queries": content.queries, "passages": content.passages}
    return Quoted(tuple(rows.values()), {n: count for n, count in counts.items() if count is not None}, file)
