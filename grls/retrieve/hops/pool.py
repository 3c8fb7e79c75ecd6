"""The passages of several chains as one ranking.

Fixed multi-step retrieval with chain beams finds more passages than its best chain holds, and recall at k
wants k of them. It knows only chains, whoever made them.
"""

from __future__ import annotations

from collections.abc import Iterable

from grls.data.types import Chain, Hit


def pooled_ranking(chains: Iterable[Chain], k: int) -> list[Hit]:
    """The distinct passages of the chains: the best chain's in hop order, then the next one's, up to k.

    Args:
        chains: The chains of one query, best first.
        k: Most hits.

    Returns:
        Hits whose score is one over their rank: the order is that of the chains, and no score of a hop says
        it.
    """
    ids = list(dict.fromkeys(hit.id for chain in chains for hit in chain.hits))
    return [Hit(passage, 1.0 / rank) for rank, passage in enumerate(ids[:k], 1)]
