"""Scoring the runs of one data set, with the value of every query kept.

Averages come from ``grls.evaluation.evaluate``; the values of single queries, which significance and
similarity need, from the same metrics' functions for one query. A list of values always follows the order
of the group's qrels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grls.corpus import gold_passages
from grls.evaluation.evaluate import evaluate_results
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.evaluation.metrics.set_f1 import set_scores
from grls.evaluation.results import Results
from grls.evaluation.run import without_done
from grls.report.runs import DataGroup, Entry
from grls.types import Chain


@dataclass(frozen=True)
class Measured:
    """A run and how good it is.

    Attributes:
        entry: The run.
        report: Section -> metric -> value, as :func:`grls.evaluation.evaluate.evaluate_results` returns it.
        retrieved: Ids of each judged query's hits, best first; empty for one without an answer.
        chains: Ids of each judged query's hops in order, without DONE; None for a run that did not go hop by
            hop, or does not say so.
    """

    entry: Entry
    report: dict[str, Any]
    retrieved: list[list[str]]
    chains: list[list[str]] | None

    @property
    def label(self) -> str:
        """What the page calls the run."""
        return self.entry.label

    @property
    def depth(self) -> int:
        """The longest list of hits."""
        return max(map(len, self.retrieved), default=0)


@dataclass(frozen=True)
class MeasuredGroup:
    """The scored runs of one data set.

    Attributes:
        group: The data set.
        gold: Gold passage ids of each judged query.
        runs: Its runs, in the order of the page.
    """

    group: DataGroup
    gold: list[list[str]]
    runs: list[Measured]

    def recalls(self, run: Measured, k: int) -> list[float]:
        """Recall@k of each query."""
        return [recall_at(ids, gold, k) for ids, gold in zip(run.retrieved, self.gold, strict=True)]

    def set_f1s(self, run: Measured) -> list[float] | None:
        """Set F1 of each query's chain; None where the run has no chains."""
        if run.chains is None:
            return None
        return [set_scores(ids, gold).f1 for ids, gold in zip(run.chains, self.gold, strict=True)]


def measure(group: DataGroup, ks: Sequence[int]) -> MeasuredGroup:
    """Score every run of a group.

    Args:
        group: The data set with its runs.
        ks: Cut-offs of the recalls.
    """
    by_id = {query.id: query for query in group.queries}
    gold = [gold_passages(by_id[query_id], group.qrels) for query_id in group.qrels]
    return MeasuredGroup(group, gold, [_measure(group, entry, ks) for entry in group.entries])


def _measure(group: DataGroup, entry: Entry, ks: Sequence[int]) -> Measured:
    results, ordered = _with_chains(entry)
    report = evaluate_results(results, group.queries, group.qrels, group.corpus, ks, group.seen)
    if ordered:
        report.pop("done_missing", None)
    rankings = [[hit.id for hit in without_done(results.rankings.get(q, ()))] for q in group.qrels]
    chains = None
    if results.chains:
        found = [results.chains[q].hits if q in results.chains else () for q in group.qrels]
        chains = [[hit.id for hit in without_done(hits)] for hits in found]
    return Measured(entry, report, rankings, chains)


def _with_chains(entry: Entry) -> tuple[Results, bool]:
    """The results, and whether their chains are rankings.

    Fixed hops are written as a ranking in hop order, and so is a dynamic run in TREC form. Read as chains,
    they have a set F1 and a proof; whether DONE came they do not say.
    """
    results = entry.results
    if results.chains or entry.steps not in ("fixed", "dynamic"):
        return results, False
    chains = {query_id: Chain(tuple(hits), 0.0, False) for query_id, hits in results.rankings.items()}
    return results._replace(chains=chains), True
