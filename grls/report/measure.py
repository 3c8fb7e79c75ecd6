"""Scores the runs of one data set, and keeps the value of every query.

Averages come from ``grls.evaluation.evaluate``; the values of single queries, for significance and
similarity, come from the same metrics' functions for one query. Lists of values always follow the order of
the group's qrels. A value that a run does not have is None: chain metrics of a ranking, recall at cut-offs
deeper than the ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grls.data.dataset import gold_passages
from grls.data.types import Chain
from grls.evaluation.depth import RunDepth, shared_depth
from grls.evaluation.evaluate import evaluate_results
from grls.evaluation.measures import MEASURES, query_values
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.evaluation.metrics.set_f1 import set_scores
from grls.report.runs import DataGroup, Entry
from grls.runs.trec import without_done


@dataclass(frozen=True)
class Measured:
    """A run with its scores.

    Attributes:
        entry: The run.
        report: Section -> metric -> value, as :func:`grls.evaluation.evaluate.evaluate_results` returns it;
            None for a metric that reads deeper than the run.
        retrieved: Ids of each judged query's hits, best first; empty for a query without an answer.
        chains: Ids of each judged query's hops in order, without DONE; None for a run that does not retrieve
            hop by hop, pools several chains, or does not say so.
        reach: Which metrics the run is deep enough for.
    """

    entry: Entry
    report: dict[str, Any]
    retrieved: list[list[str]]
    chains: list[list[str]] | None
    reach: RunDepth

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
        if not run.reach.tells(f"recall@{k}"):
            return None
        return [recall_at(ids, gold, k) for ids, gold in zip(run.retrieved, self.gold, strict=True)]

    def values(self, run: Measured, measure: str) -> list[float] | None:
        """A standard measure of each query, to be compared; None if its cut-off is deeper than the run.

        Without a cut-off it reads to the depth that all runs have.
        """
        if not run.reach.tells(measure):
            return None
        shared = shared_depth([other.reach for other in self.runs if other.reach.tells(measure)])
        ranked = {query: ids[:shared] for query, ids in zip(self.group.qrels, run.retrieved, strict=True)}
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
    measured = []
    for entry in group.entries:
        # Fixed hops are written as a ranking in hop order, and so is a dynamic run in TREC form. As chains
        # they have a set F1 and a proof, but they do not say whether the model wrote DONE.
        run = entry.run
        ordered = not run.chains and not run.is_ranking
        if ordered:
            hops = {query_id: Chain(tuple(hits), 0.0, False) for query_id, hits in run.rankings.items()}
            run = replace(run, chains=hops)
        given = (group.queries, group.qrels, group.corpus, ks, group.seen, str(entry.file), measures)
        report = evaluate_results(run, *given, ordered=entry.run.in_hop_order)
        if ordered:
            report.pop("done_missing", None)
        rankings = [[hit.id for hit in without_done(run.rankings.get(q, ()))] for q in group.qrels]
        chains = None
        if run.chains:
            walks = [run.chains[q].hits if q in run.chains else () for q in group.qrels]
            chains = [[hit.id for hit in without_done(hits)] for hits in walks]
        depth = RunDepth.of(entry.run, len(group.corpus), gold)
        measured.append(Measured(entry, report, rankings, chains, depth))
    return MeasuredGroup(group, gold, measured)


def refuse_untold(groups: Sequence[MeasuredGroup], metrics: Sequence[str]) -> None:
    """Refuse metrics that were asked for by name and that no run is deep enough for.

    Raises:
        ConfigError: There is one.
    """
    reaches = [run.reach for group in groups for run in group.runs]
    untold = [metric for metric in metrics if not any(reach.tells(metric) for reach in reaches)]
    max(reaches, key=lambda reach: reach.ranks or 0).refuse(untold)
