"""What the runs of a system are worth: recall and standard measures of the queries of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from grls.data.dataset import Qrels, gold_passages
from grls.data.types import Query
from grls.evaluation.measures import query_values
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.runs.run import Run

ORDER = "nDCG@10"
_STANDARD = (ORDER, "RR")
_DEEP = 20


@dataclass(frozen=True)
class SplitGold:
    """The judged queries of a split.

    Attributes:
        split: Its name.
        queries: The queries.
        qrels: Their judgements.
    """

    split: str
    queries: list[Query]
    qrels: Qrels

    def gold(self) -> list[list[str]]:
        """Ids of the gold passages of each query."""
        return [gold_passages(query, self.qrels) for query in self.queries]

    def rankings(self, run: Run) -> list[list[str]]:
        """What a run ranks for each query; nothing where it has no answer."""
        return [[hit.id for hit in run.rankings.get(query.id, ())] for query in self.queries]

    def recalls(self, run: Run, k: int) -> list[float]:
        """Recall@k of each query."""
        return [recall_at(ids, gold, k) for ids, gold in zip(self.rankings(run), self.gold(), strict=True)]

    def order(self, run: Run) -> float:
        """Mean nDCG@10."""
        return self._standard(run, (ORDER,))[ORDER]

    def measures(self, run: Run, k: int) -> dict[str, float]:
        """Name -> mean, rounded for people."""
        found = {f"R@{cut}": fmean(self.recalls(run, cut)) for cut in dict.fromkeys((k, _DEEP))}
        return {name: round(value, 4) for name, value in (found | self._standard(run, _STANDARD)).items()}

    def _standard(self, run: Run, names: Sequence[str]) -> dict[str, float]:
        ranked = {query.id: ids for query, ids in zip(self.queries, self.rankings(run), strict=True)}
        judged = {query.id: self.qrels[query.id] for query in self.queries}
        return {name: fmean(values) for name, values in query_values(list(names), ranked, judged).items()}
