"""The hits of a search by any retriever, of its best chain or else of its ranking, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeGuard, cast

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.links import as_written
from grls.data.types import Chain, FullHit, Hit, Query
from grls.retrieve.base import FindsChains, LetsJoin, Plan, Retriever, WalksHops
from grls.runs.trec import falling


def numbered_hits(chain: Chain) -> list[Hit]:
    """The passages of a chain, each with its hop; a passage that two hops found stands there twice.

    Scores are falling sums, as of :func:`~grls.runs.trec.chain_ranking`.
    """
    scores = falling(list(accumulate(hit.score for hit in chain.hits)))
    hops = enumerate(zip(chain.hits, scores, strict=True), 1)
    return [FullHit.of(hit._replace(score=score), hop=hop) for hop, (hit, score) in hops]


def search_hits(
    retriever: Retriever, queries: Sequence[Query | str], k: int, allow: Allow = None
) -> list[list[Hit]]:
    """For each query, at most k passages of the best chain, or else of the ranking."""
    if not returns_chain(retriever):
        return retriever.retrieve(queries, k, allow)
    return [numbered_hits(chains[0])[:k] for chains in retriever.retrieve_chains(queries, allow)]


def with_texts(rankings: Sequence[Sequence[Hit]], corpus: Corpus) -> list[list[Hit]]:
    """The hits, by id, with text, title and metadata of their passages, which are read once.

    The words of links are then those of the titles.
    """
    ids = list({hit.id for hits in rankings for hit in hits})
    numbers = cast(list[int], corpus.numbers(ids))  # of hits, none is unknown
    read = dict(zip(ids, corpus.with_metadata(numbers), strict=True)) if ids else {}
    return [
        [
            FullHit.of(
                hit._replace(text=passage.text, title=passage.title),
                metadata,
                links=[link._replace(words=as_written(passage, link.words)) for link in hit.links],
            )
            for hit in hits
            for passage, metadata in [read[hit.id]]
        ]
        for hits in rankings
    ]


def plan_search(retriever: LetsJoin, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
    """:func:`search_hits` of one query, for a search that others join."""
    if not returns_chain(cast(Retriever, retriever)):
        return (yield from retriever.plan(query, k, allow))
    last = yield from cast(WalksHops, retriever).plan_walk(query, allow, lambda _: None)
    return numbered_hits(last.chains()[0][0])[:k]


def returns_chain(retriever: Retriever) -> TypeGuard[FindsChains]:
    """Whether a search returns a chain in the order of its hops: no ranking, no set, no pool of chains."""
    return bool(getattr(retriever, "best_chain", False))
