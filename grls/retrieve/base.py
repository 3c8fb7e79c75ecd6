"""What a retriever is, and what some can do beyond that.

A retriever gets queries and returns passages; whether it decodes them, looks words up or compares vectors
is its own. Whoever needs more asks for a capability (``isinstance(retriever, ScoresAll)``), never for a kind:

- :class:`ScoresAll`: scores of all passages, so it can be a prior, a teacher, a source of negatives;
- :class:`TakesEvidence`: takes the passages found so far in its own way, and scores DONE;
- :class:`WritesChains`: its scores are log-probabilities of passages beside DONE, so those of hops add up;
- :class:`FindsChains`: goes hop by hop;
- :class:`DecodesPassages`: its search can be watched, prefix by prefix;
- :class:`Tunable`: tuning changes a part of its fingerprint.

Kinds are registered in :mod:`grls.retrieve.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Passage, Query, Steps

if TYPE_CHECKING:
    from grls.decode import ScoredPassage
    from grls.decode.prior import Prior
    from grls.retrieve.generative.retriever import GenerativeRetriever

AllScores = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""From n numbers of queries to their scores, ``[n, N]``, or ``[n, N + 1]`` with DONE last."""


@dataclass(frozen=True)
class Description:
    """What manifests and reports say of a retriever.

    Args:
        system: What it is called in tables: ``generator``, ``biencoder``, ``bm25``, ``hybrid``, ``ensemble``,
            or the kind.
        score_mode: What its scores mean.
        options: What results depend on, beside the fingerprint; JSON values.
        label: How it retrieves, in a few words; empty: ``system``.
        stages: The training stages of its model.
        members: The labels of what it is made of.
        steps: See :data:`Steps`.
        sets: Its chains are sets: the scores of their passages rank them, not the places.
    """

    system: str
    score_mode: str
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    stages: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    steps: Steps = "single"
    sets: bool = False

    @property
    def name(self) -> str:
        """The label, or the system."""
        return self.label or self.system


class Retriever(Protocol):
    """Retrieval over one corpus."""

    @property
    def kind(self) -> str:
        """Its name in :mod:`grls.retrieve.registry`."""
        ...

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        ...

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        ...

    def fingerprint(self) -> str:
        """Of what it finds passages by: two of another model, corpus or setting differ."""
        ...

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k distinct passages of each query, best first.

        Args:
            queries: The queries; the result is in the same order.
            k: Most hits a query, at least 1. A corpus with fewer passages gives fewer hits, and so
                does a query that fewer passages match: a passage is never invented to fill the list.
            allow: What may be found: a filter or passage ids for all queries, or one entry a query (None: no
                filter). The top k are those of the allowed passages: nothing is retrieved to be thrown away.

        Returns:
            One list a query. Scores never rise along a list; what they mean, :meth:`describe` says.
        """
        ...


@runtime_checkable
class ScoresAll(Protocol):
    """A retriever that scores all passages."""

    @property
    def temperature(self) -> float:
        """What its scores are divided by where a softmax over passages is taken, if nothing else is said."""
        ...

    @property
    def scores_done(self) -> bool:
        """Whether it scores DONE, too, as a passage after the last one."""
        ...

    @property
    def least_score(self) -> float:
        """A passage that scores no more is no hit (BM25: 0); minus infinity where every passage is one."""
        ...

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """Make ready for Q queries.

        Args:
            queries: The queries.
            evidence: For each, the passages found so far, in order; empty: none.

        Returns:
            A function from n numbers of these queries to their scores. It is called when a query gets its
            turn, so that no more than those of a few are in memory.
        """
        ...


class HopHits(NamedTuple):
    """What a hop finds.

    Attributes:
        hits: Passages, best first, DONE not among them.
        done: The score of DONE; None where the retriever knows none.
    """

    hits: list[Hit]
    done: float | None


@runtime_checkable
class TakesEvidence(Protocol):
    """A retriever that takes the passages found so far in its own way, and scores DONE."""

    @property
    def done_biases(self) -> Sequence[float]:
        """What is tried for the bias of DONE, in the unit of the scores, where nothing else is said."""
        ...

    @property
    def learned_done(self) -> bool | None:
        """Whether it was trained to tell when DONE follows; None: not known."""
        ...

    def retrieve_hop(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        allow: Allow = None,
    ) -> list[HopHits]:
        """The top-k allowed passages given those found so far, and the score of DONE."""
        ...


class Under(NamedTuple):
    """A chain under way, as its next hop is asked for.

    Attributes:
        query: Place of its query.
        passages: Numbers of the passages found so far.
        hidden: Numbers that may not come next.
    """

    query: int
    passages: tuple[int, ...]
    hidden: tuple[int, ...]


NextHop = Callable[[Sequence[Under], int, int], "list[list[ScoredPassage]]"]
"""Chains under way, number of the hop, k -> the k likeliest next passages of each, DONE among them."""


@runtime_checkable
class WritesChains(Protocol):
    """A retriever whose scores are log-probabilities of passages, DONE among them."""

    @property
    def writes_chains(self) -> bool:
        """Whether they are: a hybrid's only where they are normalized."""
        ...

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        ...

    @property
    def done_biases(self) -> Sequence[float]:
        """What is tried for the bias of DONE (nats), where nothing else is said."""
        ...

    @property
    def done(self) -> int:
        """The number of DONE."""
        ...

    @property
    def widest(self) -> int:
        """Passages that a search knows, whatever k is: its beams."""
        ...

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Make ready for hops of these queries; ``allow`` holds for every hop."""
        ...


@runtime_checkable
class DecodesPassages(Protocol):
    """A retriever that decodes passages, alone or with others that look ahead."""

    @property
    def generator(self) -> GenerativeRetriever:
        """What writes."""
        ...

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> Prior | None:
        """What others say of the passages for a query and the passages found so far; None: there are none."""
        ...

    def fingerprint(self) -> str:
        """Of what it finds passages by."""
        ...


@runtime_checkable
class FindsChains(Protocol):
    """A retriever that goes hop by hop, or ends rankings as sets."""

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        ...

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first, made of allowed passages."""
        ...


@runtime_checkable
class EndsRankings(Protocol):
    """A retriever that ends rankings as sets, and knows what their passages score in the ranking."""

    def retrieve_sets(self, queries: Sequence[Query], allow: Allow = None) -> list[tuple[list[Hit], Chain]]:
        """What is kept of each query's ranking, as it is ranked, and the same as a chain."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A retriever of whose fingerprint tuning changes a part: weights, biases, cuts."""

    def untuned(self) -> str:
        """The fingerprint of all else: of its models and members, each with the weights that it has."""
        ...


def untuned_fingerprint(retriever: Retriever) -> str:
    """The fingerprint of a retriever without what tuning its folder changes."""
    return retriever.untuned() if isinstance(retriever, Tunable) else retriever.fingerprint()
