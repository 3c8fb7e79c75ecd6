"""Scores the runs of one data set, and keeps the value of every query.

Averages come from ``grls.evaluation.evaluate``; the values of single queries, for significance and
similarity, come from the same metrics' functions for one query. Lists of values always follow the order of
the group's qrels. A value that a run does not have is None: chain metrics of a ranking, recall at cut-offs
deeper than the ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grls.data.dataset import gold_passages
from grls.data.types import RANKINGS, Chain
from grls.evaluation.evaluate import evaluate_results
from grls.evaluation.measures import MEASURES, query_values
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.evaluation.metrics.set_f1 import set_scores
from grls.report.runs import DataGroup, Entry, members_of
from grls.runs.run import Run
from grls.runs.trec import without_done

Form = Literal["chain", "ranking", "unknown"]
"""Form of a list of hits: the hops of one chain, a ranking cut off at a depth, or unknown."""


@dataclass(frozen=True)
class Measured:
    """A run with its scores.

    Attributes:
        entry: The run.
        report: Section -> metric -> value, as :func:`grls.evaluation.evaluate.evaluate_results` returns it;
            None for a metric with a cut-off beyond ``reach``.
        retrieved: Ids of each judged query's hits, best first; empty for a query without an answer.
        chains: Ids of each judged query's hops in order, without DONE; None for a run that does not retrieve
            hop by hop, pools several chains, or does not say so.
        reach: The deepest cut-off with recall; None if every cut-off has recall.
    """

    entry: Entry
    report: dict[str, Any]
    retrieved: list[list[str]]
    chains: list[list[str]] | None
    reach: int | None

    @property
    def label(self) -> str:
        """The name of the run on the page."""
        return self.entry.label

    @property
    def depth(self) -> int:
        """Length of the longest list of hits."""
        return max(map(len, self.retrieved), default=0)


@dataclass(frozen=True)
class MeasuredGroup:
    """The scored runs of one data set.

    Attributes:
        group: The data set.
        gold: Gold passage ids of each judged query.
        runs: The runs, in the order of the page.
    """

    group: DataGroup
    gold: list[list[str]]
    runs: list[Measured]

    def recalls(self, run: Measured, k: int) -> list[float] | None:
        """Recall@k of each query; None if k is deeper than the run."""
        if run.reach is not None and k > run.reach:
            return None
        return [recall_at(ids, gold, k) for ids, gold in zip(run.retrieved, self.gold, strict=True)]

    def values(self, run: Measured, measure: str) -> list[float] | None:
        """A standard measure of each query; None if its cut-off is deeper than the run."""
        if run.reach is not None and _cutoff(measure) > run.reach:
            return None
        ranked = dict(zip(self.group.qrels, run.retrieved, strict=True))
        return query_values([measure], ranked, self.group.qrels)[measure]

    def set_f1s(self, run: Measured) -> list[float] | None:
        """Set F1 of each query's chain; None if the run has no chains."""
        if run.chains is None:
            return None
        return [set_scores(ids, gold).f1 for ids, gold in zip(run.chains, self.gold, strict=True)]


def score_runs(group: DataGroup, ks: Sequence[int], measures: Sequence[str] = MEASURES) -> MeasuredGroup:
    """Score every run of a group.

    Args:
        group: The data set with its runs.
        ks: Cut-offs of the recalls.
        measures: Standard measures (:func:`grls.evaluation.measures.measure_names`).
    """
    by_id = {query.id: query for query in group.queries}
    gold = [gold_passages(by_id[query_id], group.qrels) for query_id in group.qrels]
    return MeasuredGroup(group, gold, [_measure(group, entry, ks, measures) for entry in group.entries])


def _measure(group: DataGroup, entry: Entry, ks: Sequence[int], measures: Sequence[str]) -> Measured:
    form = _form(entry, group.entries)
    run, ordered = _with_chains(entry, form)
    given = (group.queries, group.qrels, group.corpus, ks, group.seen, str(entry.file), measures)
    report = evaluate_results(run, *given, ordered=entry.run.in_hop_order)
    if ordered:
        report.pop("done_missing", None)
    for name, values in (report.pop("by_type", None) or {}).items():  # a table of each type of questions
        report[f"type_{name}".replace(" ", "_")] = values
    rankings = [[hit.id for hit in without_done(run.rankings.get(q, ()))] for q in group.qrels]
    chains = None
    if run.chains:
        hops = [run.chains[q].hits if q in run.chains else () for q in group.qrels]
        chains = [[hit.id for hit in without_done(hits)] for hits in hops]
    reach = None if form == "chain" else _reach(entry, max(map(len, rankings), default=0))
    return Measured(entry, _within(report, reach), rankings, chains, reach)


def _form(entry: Entry, entries: Sequence[Entry]) -> Form:
    """The form of a run's lists.

    The manifest of an ensemble does not say whether its members pool chains, but the members' manifests do,
    if they are among the runs.

    Args:
        entry: The run.
        entries: All runs, with the members of an ensemble among them.
    """
    info = entry.info
    if entry.steps == "dynamic":
        return "chain"
    if info is None:
        return "unknown"
    if info.steps in RANKINGS or info.options.get("pool") is True:
        return "ranking"
    if info.system != "ensemble":
        return "chain"
    others = [other for other in entries if other is not entry]
    members = {
        "unknown" if m is None or m.steps != "fixed" else _form(m, others) for m in _members(entry, others)
    }
    if "ranking" in members:
        return "ranking"
    return "chain" if members == {"chain"} else "unknown"


def _members(entry: Entry, others: Sequence[Entry]) -> list[Entry | None]:
    return [member for _, member in members_of(entry, others)]


def _with_chains(entry: Entry, form: Form) -> tuple[Run, bool]:
    """The run, and whether its chains are read from rankings.

    Fixed hops are written as a ranking in hop order, and so is a dynamic run in TREC form. As chains they
    have a set F1 and a proof, but they do not say whether the model wrote DONE.
    """
    run = entry.run
    if run.chains or form != "chain":
        return run, False
    chains = {query_id: Chain(tuple(hits), 0.0, False) for query_id, hits in run.rankings.items()}
    return replace(run, chains=chains), True


def _reach(entry: Entry, longest: int) -> int | None:
    """The depth of a ranking: the k in its manifest, else the length of the longest list.

    A run that found fewer passages than k has no further passages; a run without passages scores 0 at every
    cut-off. A run of unknown form counts as a ranking: a run of another tool is a ranking cut off at a depth,
    and the recall of a chain does not change beyond its end.
    """
    asked = None if entry.info is None else entry.info.options.get("k")
    if isinstance(asked, int) and not isinstance(asked, bool):
        return max(asked, longest)
    return longest or None


def _within(report: dict[str, Any], reach: int | None) -> dict[str, Any]:
    """The report without values at cut-offs (``METRIC@K``) beyond ``reach``."""
    if reach is None:
        return report
    return {
        section: {metric: None if _cutoff(metric) > reach else value for metric, value in values.items()}
        for section, values in report.items()
    }


def _cutoff(metric: str) -> int:
    k = metric.rpartition("@")[2]
    return int(k) if k.isdigit() else 0
