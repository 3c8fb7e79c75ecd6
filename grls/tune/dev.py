"""Development queries with their gold passages, and the quality of rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, own_corpus, read_split
from grls.data.types import Query
from grls.errors import DataError
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.retrieve.hybrid.tuning import Quality


@dataclass(frozen=True)
class DevQueries:
    """Q queries to tune on.

    Attributes:
        data: The data set folder.
        split: Which queries.
        queries: ``[Q]``.
        gold: ``[Q]`` ids of the gold passages.
        corpus: The corpus of the data set; None where it has none.
    """

    data: str
    split: str
    queries: list[Query]
    gold: list[list[str]]
    corpus: Corpus | None

    @classmethod
    def read(cls, data: str, split: str, limit: int | None = None) -> DevQueries:
        """Read them.

        Args:
            data: The data set folder.
            split: Which queries.
            limit: Only the first so many.

        Raises:
            DataError: There is none.
        """
        corpus = own_corpus(data)
        queries, qrels = read_split(data, split, corpus)
        queries = queries[:limit]
        if not queries:
            raise DataError(f"the split {split!r} holds no query to tune on; give another --split.", data)
        return cls(data, split, queries, [gold_passages(query, qrels) for query in queries], corpus)

    def quality(self, ids: Sequence[Sequence[str]], k: int) -> Quality:
        """Recall and nDCG of the first k passages of each query."""
        recall = sequence_recall(ids, self.gold, [k])[f"recall@{k}"]
        return Quality(recall, ndcg([ranking[:k] for ranking in ids], self.gold))
