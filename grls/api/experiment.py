"""Compares systems on the same queries: means, differences to a baseline with p values, time a query.

A system is a searcher, or anything else with ``search(texts, k)``. Recall (``R@5``) is ours
(:mod:`grls.evaluation.metrics.sequence_recall`), the other measures are by ``ir_measures``; both are as in
``grls evaluate``. Significance: :mod:`grls.evaluation.significance`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from grls.api.searcher import Searcher
from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.inputs.arguments import Count, checked
from grls.data.inputs.gold import gold_of, refuse_unknown_gold
from grls.data.inputs.tables import id_text, name_list, short_repr
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import cutoff, measure_names, query_values
from grls.evaluation.significance import Comparison, compare, holm, shown_p
from grls.io.progress import counted

if TYPE_CHECKING:
    import pandas as pd


MEASURES = ("nDCG@10", "R@5", "RR")
"""The default measures."""

_LEAST_K = 10  # as `grls retrieve`


class SearchesTexts(Protocol):
    """What an experiment needs of a system."""

    def search(self, queries: list[str], k: int) -> Sequence[Sequence[Any]]:
        """The hits of each text, best first.

        A hit is an id, a tuple that begins with one, or has one as ``id``.
        """


@checked
def experiment(
    systems: Mapping[str, SearchesTexts],
    queries: Any,
    gold: Any = None,
    measures: Annotated[Any, measure_names] = MEASURES,
    baseline: str | None = None,
    k: Count | None = None,
) -> ExperimentTable:
    """Compare systems on the same queries.

    All arguments are checked before the first search. Each system answers one query first, so that the time
    a query does not include what happens once.

    Args:
        systems: Name -> a searcher, or anything with ``search(texts, k)`` that gives each text's hits.
        queries: The queries, in any form that :func:`~grls.data.inputs.entries.queries_from` takes.
        gold: Their gold passages, in any form that :func:`~grls.data.inputs.gold.gold_of` takes; None: the
            evidence of the queries. With the queries of a data set folder the name of a split, such as
            ``"test"``: without it the queries of all splits take part, those of training too.
        measures: Names of measures: ``R@k`` is the recall of gold passages, all others are those of
            ``ir_measures``, whose objects (``nDCG @ 10``) may stand for their names.
        baseline: The name of the system that the others are compared with; None: no comparison.
        k: Hits of each query; None: as many as the deepest cut-off reads, and at least 10. Measures without a
            cut-off (``RR``, ``AP``) read ``k`` hits.

    Returns:
        The table: means, differences to the baseline and their p values (two-sided paired permutation test,
        by Holm's correction for the systems compared), and the seconds a query.

    Raises:
        ConfigError: There is no system, one cannot search, ``baseline`` names none, a measure is unknown, or
            ``k`` is less than a cut-off.
        DataError: Queries or gold are wrong (a gold passage is in no corpus, a query has no gold passage), or
            a system gives something other than hits.
    """
    if not systems:
        raise ConfigError(
            "systems: expected a dict of at least one system, such as {'bm25': grls.BM25(corpus)}, got {}."
        )
    for name, system in systems.items():
        if not callable(getattr(system, "search", None)):
            raise ConfigError(
                f"systems: {name!r}: expected something with search(texts, k), got {short_repr(system)}; "
                "open a retriever folder with grls.load."
            )
    if baseline is not None and baseline not in systems:
        raise ConfigError(f"baseline: {baseline!r} is none of the systems {name_list(systems)}.")
    if not measures:
        raise ConfigError(f"measures: expected at least one measure, such as {name_list(MEASURES)}.")
    deepest = max(map(cutoff, measures))
    if k is not None and k < deepest:
        raise ConfigError(
            f"a measure reads {counted(deepest, 'hit')}, and k is {k}: raise k, or leave it out."
        )
    depth = max(deepest, _LEAST_K) if k is None else k
    joined = gold_of(gold, queries)
    corpora = [getattr(system, "corpus", None) for system in systems.values()]
    refuse_unknown_gold(joined, [corpus for corpus in corpora if isinstance(corpus, Corpus)])
    texts = [query.text for query in joined.queries]
    values: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, float] = {}
    for name, system in systems.items():
        search = system.rankings if isinstance(system, Searcher) else system.search
        search(texts[:1], depth)
        begun = time.perf_counter()
        results = list(search(texts, depth))
        seconds[name] = (time.perf_counter() - begun) / len(texts)
        if len(results) != len(texts):
            raise DataError(
                f"the system {name!r} gave {counted(len(results), 'list')} of hits for "
                f"{counted(len(texts), 'query')}; expected one list a query, in their order."
            )
        pairs = zip(joined.queries, results, strict=True)
        rankings = {query.id: _ids(hits, f"{name!r}, query {query.id!r}", depth) for query, hits in pairs}
        values[name] = query_values(measures, rankings, {q.id: joined.qrels[q.id] for q in joined.queries})
    rows = _rows(values, seconds, baseline)
    return ExperimentTable(tuple(measures), rows, baseline, depth, len(texts))


def _rows(
    values: Mapping[str, Mapping[str, Sequence[float]]], seconds: Mapping[str, float], baseline: str | None
) -> tuple[SystemScores, ...]:
    """Rows of the table: systems compared with the baseline in each measure, p corrected for all systems."""
    differences: dict[str, dict[str, Comparison]] = {system: {} for system in values}
    corrected: dict[str, dict[str, float]] = {system: {} for system in values}
    if baseline is not None:
        compared = [system for system in values if system != baseline]
        for measure, scores in values[baseline].items():
            comparisons = [compare(values[system][measure], scores) for system in compared]
            p = holm([comparison.p for comparison in comparisons])
            for system, comparison, corrected_p in zip(compared, comparisons, p, strict=True):
                differences[system][measure], corrected[system][measure] = comparison, corrected_p
    return tuple(
        SystemScores(
            system,
            {name: fmean(numbers) for name, numbers in scores.items()},
            differences[system],
            corrected[system],
            seconds[system],
        )
        for system, scores in values.items()
    )


def _ids(hits: Any, label: str, k: int) -> list[str]:
    """The ids of the first k hits, which are passages; checked."""
    if isinstance(hits, str) or not hasattr(hits, "__iter__"):
        raise DataError(f"the system {label}: expected a list of hits, got {short_repr(hits)}.")
    ids = []
    for hit in hits:
        first = hit[0] if isinstance(hit, tuple | list) and hit else hit
        ids.append(id_text(getattr(hit, "id", first), f"{label}, a hit", "the results of a system"))
    passages = [name for name in ids if name != DONE_ID][:k]
    if len(set(passages)) < len(passages):
        raise DataError(f"the system {label}: a passage is listed twice; a ranking holds each passage once.")
    return passages


_LEVEL = 0.05
"""P values below it are bold in HTML."""


class SystemScores(NamedTuple):
    """The means of a system, shares of 1; text and HTML show them in points (percent).

    Attributes:
        name: The name of the system.
        means: Measure -> its mean over the queries.
        differences: Measure -> comparison with the baseline; empty for the baseline, or without one.
        p: Measure -> p of the difference, by Holm's correction for all systems that are compared.
        seconds: Seconds a query.
    """

    name: str
    means: dict[str, float]
    differences: dict[str, Comparison]
    p: dict[str, float]
    seconds: float


@dataclass(frozen=True, repr=False)
class ExperimentTable:
    """The table of an experiment; it prints itself, also in notebooks.

    Attributes:
        measures: The names of the measures.
        rows: What each system scored.
        baseline: The name of the system that the others are compared with; None: no comparison.
        k: Hits of each query.
        queries: Number of queries.
    """

    measures: tuple[str, ...]
    rows: tuple[SystemScores, ...]
    baseline: str | None
    k: int
    queries: int

    def __getitem__(self, name: str) -> SystemScores:
        """The scores of the system of this name."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise KeyError(f"{name!r} is none of the systems {', '.join(rows)}")
        return rows[name]

    def __repr__(self) -> str:
        cells = [self._head(), *map(self._cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [self._caption()]
        for row in cells:  # the first cell to the left, the others to the right
            numbers = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join([f"{row[0]:<{widths[0]}}", *numbers]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = self._head()
        names = [name for name in self.measures for _ in range(1 if self.baseline is None else 3)]
        rows = []
        for row in self.rows:
            cells = []
            for column, text in enumerate(self._cells(row)):
                marked = head[column] == "p" and text and row.p[names[column - 1]] < _LEVEL
                shown = f"<b>{escape(text)}</b>" if marked else escape(text)
                cells.append(f"<th>{shown}</th>" if column == 0 else f"<td>{shown}</td>")
            rows.append(f"<tr>{''.join(cells)}</tr>")
        titles = "".join(f"<th>{escape(text)}</th>" for text in head)
        return (
            f"<table><caption>{escape(self._caption())}</caption><thead><tr>{titles}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )

    def to_dict(self) -> dict[str, Any]:
        """All values, ready for JSON."""
        systems = {
            row.name: {
                "means": dict(row.means),
                "differences": {
                    measure: {**difference._asdict(), "p_holm": row.p[measure]}
                    for measure, difference in row.differences.items()
                },
                "seconds": row.seconds,
            }
            for row in self.rows
        }
        return {"baseline": self.baseline, "k": self.k, "queries": self.queries, "systems": systems}

    def to_frame(self) -> pd.DataFrame:
        """A data frame of pandas with one row a system.

        Columns: each measure; with a baseline also ``<measure> difference`` and ``<measure> p``; ``seconds``.
        """
        import pandas as pd

        rows = []
        for row in self.rows:
            values: dict[str, float | None] = {}
            for name in self.measures:
                values[name] = row.means[name]
                if self.baseline is not None:
                    compared = row.differences.get(name)
                    values[f"{name} difference"] = None if compared is None else compared.difference
                    values[f"{name} p"] = row.p.get(name)
            rows.append({**values, "seconds": row.seconds})
        return pd.DataFrame(rows, index=pd.Index([row.name for row in self.rows], name="system"), dtype=float)

    def _caption(self) -> str:
        counts = f"{counted(self.queries, 'query')}, {counted(self.k, 'hit')} each; measures in points"
        if self.baseline is None:
            return counts
        return f"{counts}; difference to {self.baseline}, and its p by Holm's correction"

    def _head(self) -> list[str]:
        compared = [] if self.baseline is None else ["diff.", "p"]
        return ["system", *(text for name in self.measures for text in (name, *compared)), "seconds a query"]

    def _cells(self, row: SystemScores) -> list[str]:
        cells = [row.name]
        for name in self.measures:
            cells.append(f"{100 * row.means[name]:.1f}")
            if self.baseline is not None:
                compared = row.differences.get(name)
                if compared is None:
                    cells += ["", ""]
                    continue
                points = f"{100 * compared.difference:+.1f}"
                cells += ["0.0" if points in ("+0.0", "-0.0") else points, shown_p(row.p[name])]
        return [*cells, f"{row.seconds:.4f}"]
