"""The protocol of a retriever, and the capabilities beyond it.

A retriever gets queries and returns passages; it may decode them, look words up or compare vectors. Code that
needs more asks for a capability (``isinstance(retriever, ScoresAll)``), never for a kind:

- :class:`ScoresAll`: scores all passages, so it can be a prior, a teacher, a source of negatives;
- :class:`TakesEvidence`: takes evidence as passages;
- :class:`ScoresDoneAfter`: takes evidence as passages, and scores DONE as well;
- :class:`DecodesHops`: decodes the next passage of many chains together, DONE among them;
- :class:`FindsChains`: retrieves hop by hop;
- :class:`WalksHops`: its hops can be watched, one after the other;
- :class:`DecodesPassages`: its search can be watched, prefix by prefix;
- :class:`MatchesWords`: says what each word of a query adds to a score;
- :class:`ChecksFolder`: its folder has invariants of its own;
- :class:`Tunable`: tuning changes a part of its fingerprint;
- :class:`LetsJoin`: its retrievals join a search that runs, as plans of what the decoder is to write.

Kinds are registered in :mod:`grls.retrieve.registry`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.types import Chain, Hit, Passage, Query, Steps

if TYPE_CHECKING:
    from grls.decode.beam import ScoredPassage
    from grls.decode.prior import Prior


Evidence = Sequence[Sequence[Passage]]
"""The passages that were found before, of each query; empty: of none."""

AllScores = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Numbers of n queries -> their scores, ``[n, N]``, or ``[n, N + 1]`` with DONE last."""


@dataclass(frozen=True)
class Description:
    """How manifests and reports describe a retriever.

    Args:
        system: Its name in tables: ``generator``, ``biencoder``, ``bm25``, ``hybrid``, ``ensemble``, or the
            kind.
        score_mode: The meaning of its scores.
        options: Further options that its results depend on; JSON values.
        label: How it retrieves, in a few words; empty: ``system``.
        stages: The training stages of its model.
        members: The labels of its members.
        steps: See :data:`Steps`.
        sets: Its chains are sets: their passages are ranked by scores, not by hops.
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


class OverCorpus(Protocol):
    """What retrieves from one corpus."""

    @property
    def corpus(self) -> Corpus:
        """The corpus that it retrieves from."""
        ...


class Retriever(OverCorpus, Protocol):
    """Retrieval over one corpus."""

    @property
    def kind(self) -> str:
        """Its name in :mod:`grls.retrieve.registry`."""
        ...

    def describe(self) -> Description:
        """How manifests and reports describe it."""
        ...

    def fingerprint(self) -> str:
        """Retrievers of different models, corpora or settings have different fingerprints."""
        ...

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k distinct passages of each query, best first; scores never rise along a list.

        Args:
            queries: The queries; the result is in the same order.
            k: Largest number of hits for a query, at least 1.
            allow: A filter or passage ids for all queries, or one entry for each query (None: no filter). The
                hits are the top k among the allowed passages.
        """
        ...


@runtime_checkable
class ScoresAll(OverCorpus, Protocol):
    """A retriever that scores all passages."""

    @property
    def kind(self) -> str:
        """See :class:`Retriever`."""
        ...

    def fingerprint(self) -> str:
        """See :class:`Retriever`."""
        ...

    @property
    def temperature(self) -> float:
        """Default temperature of a softmax over its scores."""
        ...

    @property
    def scores_done(self) -> bool:
        """Whether it also scores DONE, as a passage after the last one."""
        ...

    @property
    def least_score(self) -> float:
        """Only passages that score above this are hits (BM25: 0)."""
        ...

    def scores(self, queries: Sequence[Query], evidence: Evidence = ()) -> AllScores:
        """Prepare the scores of queries, each given its evidence so far.

        Returns:
            A function from n numbers of these queries to their scores. It is called for a few queries at a
            time, so memory holds only their scores.
        """
        ...


class HopHits(NamedTuple):
    """Passages, best first, without DONE; and the score of DONE, None where the retriever has none."""

    hits: list[Hit]
    done: float | None


@runtime_checkable
class TakesEvidence(Protocol):
    """A retriever that takes evidence as passages."""

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        """The top-k allowed passages given evidence, and the score of DONE, which no filter affects."""
        ...


@runtime_checkable
class ScoresDoneAfter(TakesEvidence, Protocol):
    """A retriever that takes evidence as passages, and scores DONE after them."""

    @property
    def learned_done(self) -> bool | None:
        """Whether it was trained with DONE; None: not known."""
        ...


class ChainToContinue(NamedTuple):
    """A chain so far: its query's index, its passages, and ``hidden`` passages that may not come next."""

    query: int
    passages: tuple[int, ...]
    hidden: tuple[int, ...]


NextHop = Callable[[Sequence[ChainToContinue], int, int], "list[list[ScoredPassage]]"]
"""Chains, number of the hop, k -> the k likeliest next passages of each chain, DONE included."""


@runtime_checkable
class DecodesHops(OverCorpus, Protocol):
    """A retriever that decodes the next passages of chains, with DONE as one of them.

    :func:`has_log_probabilities` tells whether the scores of its hops add up to those of chains.
    """

    @property
    def scores_are_log_probabilities(self) -> bool:
        """Whether scores are log-probabilities of passages and DONE; those of a hybrid are if normalized."""
        ...

    @property
    def done(self) -> int:
        """The number of DONE."""
        ...

    @property
    def widest(self) -> int:
        """How many passages a search scores for any k: its beams."""
        ...

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Prepare the hops of these queries; ``allow`` is the filter of every hop."""
        ...


def has_log_probabilities(retriever: object) -> TypeGuard[DecodesHops]:
    """Whether a retriever decodes hops whose scores are log-probabilities, so that those of hops add up."""
    return isinstance(retriever, DecodesHops) and retriever.scores_are_log_probabilities


@runtime_checkable
class DecodesPassages(Protocol):
    """A retriever that decodes passages, alone or with priors that look ahead."""

    @property
    def generator(self) -> Any:
        """The generator that writes passages, of kind ``generative``."""
        ...

    def priors_of(self, queries: Sequence[Query], evidence: Evidence) -> Prior | None:
        """The prior over passages for queries, each with its evidence; None: no prior."""
        ...

    def fingerprint(self) -> str:
        """See :meth:`Retriever.fingerprint`."""
        ...


@runtime_checkable
class FindsChains(OverCorpus, Protocol):
    """A retriever that works hop by hop, or ends rankings as sets."""

    @property
    def best_chain(self) -> bool:
        """Whether a search returns its best chain, hop by hop: no set, no pool of chains."""
        ...

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first, made of allowed passages."""
        ...


class SoFar(NamedTuple):
    """The chains of queries after a hop.

    Attributes:
        hop: The number of hops so far, from 1.
        last: No further hop follows.
        chains: The chains of each query, best first; a chain that goes on is not ``done``.
    """

    hop: int
    last: bool
    chains: Callable[[], list[list[Chain]]]


@runtime_checkable
class WalksHops(Protocol):
    """A retriever whose hops can be watched, one after the other."""

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """Retrieve hop by hop, and yield after each hop; ``allow`` is the filter of every hop."""
        ...

    def plan_walk(self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object]) -> Plan[SoFar]:
        """:meth:`walk` of one query, for a search that others join; ``tell`` is called after every hop."""
        ...


@runtime_checkable
class MatchesWords(Protocol):
    """A retriever whose score of a passage is a sum over the words of the query."""

    def word_scores(self, text: str, passage: int) -> dict[str, float]:
        """What each word of a query, in order and once, adds to the score of the passage with this number."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A retriever with tuned options (weights, biases) in its fingerprint."""

    def untuned(self) -> str:
        """The fingerprint without tuned options."""
        ...


def untuned_fingerprint(retriever: Retriever) -> str:
    """See :class:`Tunable`."""
    return retriever.untuned() if isinstance(retriever, Tunable) else retriever.fingerprint()


def ranking_fingerprint(retriever: Retriever) -> str:
    """SHA-256 of all that the rankings of a retriever depend on, whatever the path of its folder."""
    described = retriever.describe()
    parts = [retriever.fingerprint(), described.score_mode, described.options]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@runtime_checkable
class WrapsSingleSteps(Protocol):
    """A retriever that works hop by hop with another one."""

    hops: Any
    retriever: Retriever


@runtime_checkable
class ChecksFolder(Protocol):
    """A retriever whose folder has invariants beyond those of every folder, for ``grls check --index``."""

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        """Its invariants: a name, the file, and a function that raises an error of grls if one is broken."""
        ...


def single_steps(retriever: Retriever) -> Retriever:
    """The retriever within one that works hop by hop; other retrievers are returned unchanged."""
    return retriever.retriever if isinstance(retriever, WrapsSingleSteps) else retriever


def no_beam(retriever: Retriever) -> str | None:
    """Why the search of a retriever has no beam to show; None if it has one."""
    inner = single_steps(retriever)
    if not isinstance(inner, DecodesPassages):
        return f"this retriever ({inner.kind}) ranks passages as a whole; it decodes no tokens."
    if inner.generator.spans is not None:
        return "this retriever writes spans of passages and scores passages from them; its beam is not shown."
    return None


class Decoding(NamedTuple):
    """A plan asks the decoder for at most k passages (DONE included) after the evidence ``passages``;
    ``hidden`` passages may not come next.
    """

    query: Query
    passages: tuple[int, ...]
    hidden: tuple[int, ...]
    k: int
    allow: Filter | None


_Result = TypeVar("_Result")

Plan = Generator[Sequence[Decoding], "list[list[ScoredPassage]]", _Result]
"""A retrieval: it yields requests, gets the passages of each, best first, and returns its result.

A retrieval hop by hop yields again after each hop. Plans of several retrievers join one search if these
decode with the same retriever of single steps, so requests in different hops share the steps of the decoder.
"""


class PlanSource(Protocol):
    """Where retrievals come from while a search runs, and where their results go."""

    def waiting(self) -> int:
        """How many retrievals may join now; 0: none waits, or the source has ended."""
        ...

    def take(self, count: int) -> Sequence[tuple[Plan[Any], Any]]:
        """At most ``count`` retrievals, which join now, each with the owner by which the source knows it."""
        ...

    def gone(self, owner: Any) -> bool:
        """Whether the result of a retrieval is no longer wanted."""
        ...

    def answer(self, owner: Any, result: Any) -> None:
        """Give back the result of a retrieval."""
        ...

    def fail(self, owner: Any, error: Exception) -> None:
        """Give back the error of a retrieval."""
        ...


@runtime_checkable
class LetsJoin(OverCorpus, Protocol):
    """A retriever whose retrievals can join a search."""

    @property
    def runner(self) -> Any:
        """The retriever whose search its retrievals join: ``run_plans(source)`` runs those of a
        :class:`PlanSource` until none is left. None: they cannot join a search.
        """
        ...

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """A retrieval of the top k."""
        ...


def runner_of(retriever: object) -> Any:
    """The retriever whose search its retrievals can join; None: there is none."""
    return retriever.runner if isinstance(retriever, LetsJoin) else None
