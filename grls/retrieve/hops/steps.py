"""Retrieval hop by hop as steps: what a hop needs, and what is there after it.

The steps are those of all queries together, whose hops a retriever finds one after the other; or those of one
query, whose hops are searched together with other retrievals (:mod:`grls.retrieve.joins`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from grls.data.corpus import Corpus
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.decode import ScoredPassage
from grls.retrieve.base import HopHits, Retriever, Under
from grls.retrieve.joins import Decoding, Plan, RunsPlans

State = TypeVar("State")


class AskedHop(NamedTuple):
    """What a hop needs: the passages that may continue chains.

    Attributes:
        live: The chains.
        hop: The number of the hop, from 0.
        k: Largest number of passages of each chain.
    """

    live: Sequence[Under]
    hop: int
    k: int


Steps = Generator[AskedHop | State, Any, None]
"""Asks for the passages of a hop, gets them (a list or hits for each chain), and gives the state after it."""


def walked(steps: Steps[State], find: Callable[[AskedHop], Any]) -> Iterator[State]:
    """The states after every hop, whose passages ``find`` returns."""
    step = next(steps, None)
    while step is not None:
        if isinstance(step, AskedHop):
            step = steps.send(find(step))
        else:
            yield step
            step = next(steps, None)


def planned(
    steps: Steps[State],
    asked: Callable[[AskedHop], Sequence[Decoding]],
    got: Callable[[AskedHop, list[list[ScoredPassage]]], Any],
    tell: Callable[[State], object] = lambda _: None,
) -> Plan[State]:
    """The steps of one query as a retrieval that joins a search; returns the state after the last hop.

    Args:
        steps: The steps.
        asked: What a hop asks the decoder for.
        got: What a hop makes of the passages.
        tell: Called with the state after every hop.
    """
    last, step = None, next(steps, None)
    while step is not None:
        if isinstance(step, AskedHop):
            step = steps.send(got(step, (yield asked(step))))
        else:
            tell(step)
            last, step = step, next(steps, None)
    assert last is not None
    return last


def as_decodings(hop: AskedHop, query: Query, allow: Filter | None, more: int = 0) -> list[Decoding]:
    """What a hop of one query asks the decoder for, with more passages than ``k``."""
    return [Decoding(query, chain.passages, chain.hidden, hop.k + more, allow) for chain in hop.live]


def hits_and_done(ranking: Sequence[ScoredPassage], corpus: Corpus, done: int, k: int) -> HopHits:
    """The k best passages of a ranking as hits, and the score of DONE.

    Args:
        ranking: Passages, best first.
        corpus: The passages.
        done: The number of DONE.
        k: Largest number of hits.
    """
    best = [one for one in ranking if one.passage != done][:k]
    ids = corpus.ids([one.passage for one in best])
    hits = [Hit(name, one.score) for name, one in zip(ids, best, strict=True)]
    return HopHits(hits, next((one.score for one in ranking if one.passage == done), None))


def decodes_hops(retriever: Retriever) -> RunsPlans | None:
    """The retriever of the hops, if its search takes further retrievals while it runs."""
    return retriever if isinstance(retriever, RunsPlans) and retriever.lets_join else None
