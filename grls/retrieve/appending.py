"""Fixed multi-step retrieval for any text retriever: the passages found so far join the query text.

This is how a retriever without a decoder goes hop by hop (BM25, a bi-encoder). It never writes DONE.
"""

from __future__ import annotations

from collections.abc import Sequence

from grls.corpus import Corpus
from grls.errors import ConfigError
from grls.retrieve.base import Retriever
from grls.types import Chain, Hit, Query


class AppendingMultistep:
    """At every hop takes the best passage not yet taken, then appends its title and text to the query.

    Args:
        retriever: Retrieves one step.
        corpus: What it retrieves from.
        hops: Length of a chain; shorter where the retriever finds nothing new.
    """

    def __init__(self, retriever: Retriever, corpus: Corpus, hops: int):
        if hops < 1:
            raise ConfigError(f"expected at least 1 hop, got {hops}.")
        self.retriever = retriever
        self.corpus = corpus
        self.hops = hops

    def retrieve(self, queries: Sequence[Query]) -> list[Chain]:
        """One chain a query, in their order.

        ``Hit.score`` is the retriever's score at that hop, ``Chain.score`` their sum: log-probabilities
        only where the retriever's scores are. ``Chain.done`` is False.
        """
        found: list[list[Hit]] = [[] for _ in queries]
        texts = [query.text for query in queries]
        for hop in range(self.hops):
            going = [n for n in range(len(queries)) if len(found[n]) == hop]
            new = self._next_hits(
                [queries[n]._replace(text=texts[n]) for n in going], [found[n] for n in going]
            )
            self._append({n: hit for n, hit in zip(going, new, strict=True) if hit}, found, texts)
        return [Chain(tuple(hits), sum(hit.score for hit in hits), done=False) for hits in found]

    def _next_hits(self, queries: Sequence[Query], found: Sequence[Sequence[Hit]]) -> list[Hit | None]:
        """The best hit not yet found, for each query."""
        if not queries:
            return []
        ranked = self.retriever.retrieve(queries, len(found[0]) + 1)
        taken = [{hit.id for hit in hits} for hits in found]
        return [
            next((h for h in hits if h.id not in ids), None) for hits, ids in zip(ranked, taken, strict=True)
        ]

    def _append(self, new: dict[int, Hit], found: list[list[Hit]], texts: list[str]) -> None:
        if not new:
            return
        numbers = self.corpus.numbers([hit.id for hit in new.values()])
        passages = self.corpus.passages([number for number in numbers if number is not None])
        for (n, hit), passage in zip(new.items(), passages, strict=True):
            found[n].append(hit)
            texts[n] = " ".join(part for part in (texts[n], passage.title, passage.text) if part)
