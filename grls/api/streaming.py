"""The hops of a search as they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import NamedTuple, cast

from grls.data.corpus import Corpus
from grls.data.filters import Filter
from grls.data.types import Chain, FullHit, Hit, Query
from grls.retrieve.base import LetsJoin, Plan, Retriever, SoFar, WalksHops
from grls.retrieve.hits import returns_chain, with_texts


class StreamedHop(NamedTuple):
    """A hop of a query, with the best chain so far.

    Attributes:
        number: The number of hops so far, from 1.
        hit: The passage that the hop adds to the best chain, with text, title and its hop; None: the chain
            ended with DONE, or no further passage was found. Its score is that of this hop, after the
            passages before it; a search that ranks by hops gives the passage another score, of all chains.
        chain: The passages of the best chain so far, in the order of hops. Where several chains are kept, a
            later hop may prefer another chain, with other passages from its first hop on.
        score: The score of that chain so far.
        done: DONE ended that chain.
        last: No further hop follows: ``chain`` is the best one.
    """

    number: int
    hit: Hit | None
    chain: tuple[Hit, ...]
    score: float
    done: bool
    last: bool


def stream_hops(
    retriever: Retriever,
    query: str | Query,
    allow: Filter | None,
    lock: RLock,
    check: Callable[[], object] = lambda: None,
) -> Iterator[StreamedHop]:
    """The hops of a query, each as soon as it is known; the filter holds in every hop.

    A retriever of single steps has one hop, its best passage. One that fuses chains yields all hops at the
    end. ``lock`` is held while the retriever works, not between hops. ``check`` is called before the texts of
    a hop are read.
    """
    states, numbered = _states(retriever, query, allow), _in_hops(retriever)
    while True:
        with lock:
            state = next(states, None)
            if state is None:
                return
            chain = state.chains()[0][0]
        check()
        yield _hop(state, chain, retriever.corpus, numbered)


def plan_hops(
    retriever: LetsJoin,
    query: Query,
    allow: Filter | None,
    emit: Callable[[StreamedHop], object],
    check: Callable[[], object] = lambda: None,
) -> Plan[None]:
    """:func:`stream_hops` as a retrieval that joins a search; ``emit`` is called with each hop."""
    numbered = _in_hops(cast(Retriever, retriever))

    def tell(state: SoFar) -> None:
        chain = state.chains()[0][0]
        check()
        emit(_hop(state, chain, retriever.corpus, numbered))

    if isinstance(retriever, WalksHops):
        yield from retriever.plan_walk(query, allow, tell)
    else:
        tell(_only((yield from retriever.plan(query, 1, allow))))


def _states(retriever: Retriever, query: str | Query, allow: Filter | None) -> Iterator[SoFar]:
    if isinstance(retriever, WalksHops):
        yield from retriever.walk([query], allow)
    else:
        (hits,) = retriever.retrieve([query], 1, allow)
        yield _only(hits)


def _only(hits: Sequence[Hit]) -> SoFar:
    chain = Chain(tuple(hits), hits[0].score if hits else 0.0, False)
    return SoFar(1, True, lambda: [[chain]])


def _in_hops(retriever: Retriever) -> bool:
    """Whether the hits of a chain carry their hops; hits of a set, or of a single step, have no hop."""
    return returns_chain(retriever) or (isinstance(retriever, WalksHops) and not retriever.describe().sets)


def _hop(state: SoFar, chain: Chain, corpus: Corpus, numbered: bool) -> StreamedHop:
    hits: Sequence[Hit] = chain.hits
    if numbered:
        hits = [FullHit.of(hit, hop=hop) for hop, hit in enumerate(hits, 1)]
    hits = tuple(with_texts([hits], corpus)[0])
    hit = hits[state.hop - 1] if len(hits) >= state.hop else None
    return StreamedHop(state.hop, hit, hits, chain.score, chain.done, state.last)
