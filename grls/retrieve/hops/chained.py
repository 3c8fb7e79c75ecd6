"""Retrieval hop by hop as a plain retriever: the passages of a query's chains are its ranking.

For whoever reads the k best passages and does not ask how they were found. The module does not know how a hop
is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.filters import Allow, one_each
from grls.data.types import Chain, Hit, Query
from grls.retrieve.base import Retriever, check_counts
from grls.retrieve.fusion.ensemble import ChainRetriever
from grls.retrieve.hops.pool import pooled_ranking


class ChainedRetriever:
    """The best chain's passages in hop order, then those of the next chain, and so on.

    Args:
        search: What goes hop by hop.
        corpus: What it retrieves from.
        single: Finds what is missing to k passages, in a single step; None: a query has as many as its
            chains, which is what chains that end by themselves are for.
    """

    def __init__(self, search: ChainRetriever, corpus: Corpus, single: Retriever | None = None):
        self.search = search
        self.corpus = corpus
        self.single = single

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query; ``Hit.score`` is 1 / place.

        See :class:`~grls.retrieve.base.Retriever`. A filter holds for every hop.

        Raises:
            ConfigError: k is below 1.
        """
        check_counts(k=k)
        chains = self.search.retrieve_chains(queries, allow)
        found = [pooled_ranking(some, k) for some in chains]
        short = [n for n, hits in enumerate(found) if len(hits) < k]
        if self.single is None or not short:
            return found
        allowed = one_each(allow, len(queries))
        more = self.single.retrieve([queries[n] for n in short], k, [allowed[n] for n in short])
        for n, hits in zip(short, more, strict=True):
            found[n] = pooled_ranking([*chains[n], Chain(tuple(hits), 0.0, False)], k)
        return found
