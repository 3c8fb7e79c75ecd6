"""Development queries with their gold passages, and the quality of rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, own_corpus, read_split
from grls.data.types import Passage, Query
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.averages import mean
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.retrieve.hybrid.tuning import Quality


@dataclass(frozen=True)
class DevHops:
    """H inputs to tune on: queries, or all hops of queries.

    Attributes:
        queries: ``[H]``.
        evidence: ``[H]`` the gold passages before each hop.
        gold: ``[H]`` ids of the gold passages that are left.
        hops: The inputs are hops: recall@k of an input is the share of the passages that k hits can hold.
    """

    queries: list[Query]
    evidence: list[list[Passage]]
    gold: list[list[str]]
    hops: bool = False

    def quality(self, ids: Sequence[Sequence[str]], k: int) -> Quality:
        """Recall and nDCG of the first k passages of each input."""
        recall = sequence_recall(ids, self.gold, [k])[f"recall@{k}"]
        if self.hops:
            found = [len({*ranking[:k]} & {*names}) for ranking, names in zip(ids, self.gold, strict=True)]
            most = [max(1, min(k, len({*names}))) for names in self.gold]
            recall = mean(n / m for n, m in zip(found, most, strict=True))
        return Quality(recall, ndcg([ranking[:k] for ranking in ids], self.gold))


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
            limit: Number of first queries; None: all.

        Raises:
            ConfigError: The limit is below 1.
            DataError: The split holds no query.
        """
        corpus = own_corpus(data)
        queries, qrels = read_split(data, split, corpus, limit)
        return cls(data, split, queries, [gold_passages(query, qrels) for query in queries], corpus)

    def at_once(self) -> DevHops:
        """Every gold passage from the query alone."""
        return DevHops(self.queries, [[] for _ in self.queries], self.gold)

    def by_hop(self, corpus: Corpus) -> DevHops:
        """Every gold passage as a hop, with the gold passages before it as evidence."""
        wanted = list(dict.fromkeys(name for names in self.gold for name in names))
        numbers = corpus.numbers(wanted) if wanted else []
        known = {name: number for name, number in zip(wanted, numbers, strict=True) if number is not None}
        texts = dict(zip(known, corpus.passages([*known.values()]), strict=True)) if known else {}
        hops: list[tuple[Query, list[Passage], list[str]]] = []
        for query, names in zip(self.queries, self.gold, strict=True):
            for hop in range(max(1, len(names))):
                evidence = [texts[name] for name in names[:hop] if name in texts]
                hops.append((query, evidence, names[hop:]))
        queries, evidence_of, gold = ([*column] for column in zip(*hops, strict=True))
        return DevHops(queries, evidence_of, gold, True)
