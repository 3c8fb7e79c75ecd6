"""Rescoring: a cross-encoder reads the first passages of a ranking together with the query.

Legend: n passages that are read.

For the first n passages x, the first retriever gives scores s(x), and the cross-encoder
(:mod:`grls.models.cross_encoder`) logits z(x):

    score(x)  =  s(x) + w z(x),    or z(x) without a weight w.

Equal scores keep the order of the first retriever. All other passages follow these n in the same order. Their
distance from the last rescored passage is their distance from the n-th passage of the first retriever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.errors import DataError, Option
from grls.io.progress import Progress
from grls.models.cross_encoder import PairScorer
from grls.retrieve.queries import joined
from grls.retrieve.rescored.options import Rereading

_TOGETHER = 256
"""Queries whose passages are read from the corpus together."""


@dataclass(frozen=True)
class Rereader:
    """Rescores the passages of rankings.

    Args:
        encoder: The cross-encoder, which reads passages with the query.
        corpus: The texts of the passages.
        rereading: Number of passages, and the weight of logits.
        batch_size: Pairs read together.
        truncate_queries: Cut queries that are too long; false refuses them.
    """

    encoder: PairScorer
    corpus: Corpus
    rereading: Rereading
    batch_size: int = 32
    truncate_queries: bool = False

    def __call__(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        whole: Sequence[Query] | None = None,
    ) -> list[list[Hit]]:
        """The rankings by the new scores.

        Args:
            queries: The queries, as the cross-encoder reads them.
            rankings: The hits of the first retriever for each, best first.
            whole: The part of each query that may not be cut; None: all of it.

        Raises:
            DataError: A query would be cut, and ``truncate_queries`` is not set.
        """
        ranked: list[list[Hit]] = []
        whole = queries if whole is None else whole
        count = sum(len(hits[: self.rereading.passages]) for hits in rankings)
        with Progress(count, "rescore", "passages", shown=None) as bar:
            for start in range(0, len(queries), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                ranked += self._part(queries[part], rankings[part], whole[part], bar.update)
        return ranked

    def _part(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        whole: Sequence[Query],
        decided: Callable[[int], object],
    ) -> list[list[Hit]]:
        read = [hits[: self.rereading.passages] for hits in rankings]
        logits = self.logits(queries, read, whole, decided)
        weight = self.rereading.weight
        return [rank_again(hits, row, weight) for hits, row in zip(rankings, logits, strict=True)]

    def logits(
        self,
        queries: Sequence[Query],
        read: Sequence[Sequence[Hit]],
        whole: Sequence[Query] | None = None,
        decided: Callable[[int], object] | None = None,
    ) -> list[list[float]]:
        """The cross-encoder's logits of passages, query by query.

        Args:
            queries: The queries, as the cross-encoder reads them.
            read: The passages that it reads with each query.
            whole: The part of each query that may not be cut; None: the whole query.
            decided: Called with the number of pairs read since the last call; None: not called.

        Raises:
            DataError: A query would be cut, and ``truncate_queries`` is not set.
        """
        texts = self._texts([hit.id for hits in read for hit in hits])
        self._refuse_cut(queries if whole is None else whole, read, texts)
        pairs = [(q.text, texts[hit.id]) for q, hits in zip(queries, read, strict=True) for hit in hits]
        flat = iter(self.encoder.logits(pairs, self.batch_size, decided).tolist())
        return [[next(flat) for _ in hits] for hits in read]

    def _texts(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of passages, titles first, by id."""
        distinct = list(dict.fromkeys(ids))
        numbers = [number for number in self.corpus.numbers(distinct) if number is not None]
        return {passage.id: joined(Query("", ""), [passage]) for passage in self.corpus.passages(numbers)}

    def _refuse_cut(
        self, queries: Sequence[Query], read: Sequence[Sequence[Hit]], texts: dict[str, str]
    ) -> None:
        if self.truncate_queries:
            return
        asked = [(query, texts[hit.id]) for query, hits in zip(queries, read, strict=True) for hit in hits]
        cut = self.encoder.cut_queries([(query.text, text) for query, text in asked])
        if cut:
            place, tokens = cut[0]
            raise DataError(
                f"query {asked[place][0].id!r} has {tokens} tokens, but the cross-encoder reads "
                f"{self.encoder.max_tokens} of a query and a passage together: its end would be cut. "
                f"Shorten it, or accept the cut with {Option('search.truncate_queries', True)}."
            )


def rank_again(hits: Sequence[Hit], logits: Sequence[float], weight: float | None) -> list[Hit]:
    """One ranking by the new scores.

    Args:
        hits: The hits of the first retriever, best first.
        logits: ``[n]`` logits of the first n hits.
        weight: The weight w; None: logits replace scores.

    Returns:
        All hits, best first.
    """
    count = len(logits)
    if not count:
        return list(hits)
    scores = (
        list(logits) if weight is None else [h.score + weight * z for h, z in zip(hits, logits, strict=False)]
    )
    ranked = [Hit(hit.id, score) for hit, score in zip(hits, scores, strict=False)]
    ranked.sort(key=lambda hit: -hit.score)
    low, last = ranked[-1].score, hits[count - 1].score
    return ranked + [Hit(hit.id, min(low, low + (hit.score - last))) for hit in hits[count:]]
