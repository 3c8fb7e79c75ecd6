"""The passages of several chains as one ranking.

Fixed multi-step retrieval with chain beams finds more passages than its best chain holds, and recall at k
needs k passages. The module knows only chains.
"""

from __future__ import annotations

from collections.abc import Iterable

from grls.data.types import Chain, Hit


def pooled_ranking(chains: Iterable[Chain], k: int) -> list[Hit]:
    """The distinct passages of the chains: the best chain's in hop order, then the next one's, up to k.

    Args:
        chains: The chains of one query, best first.
        k: Largest number of hits.

    Returns:
        Hits with 1 / rank as score, since the order comes from the chains and not from scores of hops.
    """
    ids = list(dict.fromkeys(hit.id for chain in chains for hit in chain.hits))
    return [Hit(passage, 1.0 / rank) for rank, passage in enumerate(ids[:k], 1)]
