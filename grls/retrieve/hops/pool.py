"""What hops found, as one list: the best chain, or the passages of all chains.

A search returns the chain. Measures, fusions and readers of answers read rankings: multi-step retrieval with
chain beams finds more passages than its best chain holds, and recall at k needs k passages. So
:meth:`~grls.retrieve.base.Retriever.retrieve` pools the chains, and :func:`search_hits` returns the best one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeGuard, cast

from grls.data.filters import Allow, Filter
from grls.data.types import RANKINGS, Chain, FullHit, Hit, Query
from grls.retrieve.base import FindsChains, Retriever, SoFar
from grls.retrieve.joins import LetsJoin, Plan, PlansWalks
from grls.retrieve.queries import check_counts
from grls.runs.trec import falling


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


def numbered_hits(chain: Chain) -> list[Hit]:
    """The passages of a chain, each with its hop; one that two hops found stands there twice.

    Scores are those of :func:`~grls.runs.trec.chain_ranking`: the sum of the scores of the hops so far, made
    falling.
    """
    scores = falling(list(accumulate(hit.score for hit in chain.hits)))
    hops = enumerate(zip(chain.hits, scores, strict=True), 1)
    return [FullHit.in_hop(hit.id, score, hop) for hop, (hit, score) in hops]


def search_hits(
    retriever: Retriever, queries: Sequence[Query | str], k: int, allow: Allow = None
) -> list[list[Hit]]:
    """What a search returns for each query: at most k passages of the best chain, or else of the ranking.

    Args:
        retriever: A retriever of any kind.
        queries: The queries.
        k: Largest number of hits for a query.
        allow: The filter; see :class:`~grls.retrieve.base.Retriever`.

    Raises:
        ConfigError: k is below 1.
    """
    check_counts(k=k)
    if not returns_chain(retriever):
        return retriever.retrieve(queries, k, allow)
    return [numbered_hits(chains[0])[:k] for chains in retriever.retrieve_chains(queries, allow)]


def plan_search(retriever: LetsJoin, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
    """:func:`search_hits` of one query, for a search that others join."""
    if not returns_chain(cast(Retriever, retriever)):
        return (yield from retriever.plan(query, k, allow))
    states: list[SoFar] = []
    yield from cast(PlansWalks, retriever).plan_walk(query, allow, states.append)
    return numbered_hits(states[-1].chains()[0][0])[:k]


def returns_chain(retriever: Retriever) -> TypeGuard[FindsChains]:
    """Whether a search returns a chain in the order of its hops: no ranking, no set, no pool of chains."""
    if not isinstance(retriever, FindsChains):
        return False
    described = retriever.describe()
    return described.steps not in RANKINGS and not described.sets and not described.options.get("pool")
