"""The common base of searches by slots: queries wait, take a slot, and leave it when they are decided.

Legend: S slots (queries in flight), R rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np

from grls.decode.beam import BeamRun, BeamSearch, ScoredPassage, refuse_empty
from grls.decode.first_step import Best, FirstSteps
from grls.decode.frontier import Frontier, Gathering
from grls.decode.prior import Masses, Prior
from grls.decode.scope import Scope
from grls.errors import at_least
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.io.files import PartTimer
from grls.models.base import SlotSession

_SHARE, _GROUP = 4, 8
"""Waiting queries get slots when one slot in four, and at least eight slots (or all), are free: an encoder
that reads two queries at a time takes up to twice as long as one that reads eight."""


class SearchRequest(NamedTuple):
    """The arguments of :meth:`SlotDecoder.search`, and what collects the frontiers of the search."""

    inputs: Sequence[Sequence[int]]
    k: int
    scope: Scope
    decided: Callable[[int], object] | None
    prior: Prior | None = None
    gathering: Gathering | None = None


class SlotDecoder(BeamSearch, ABC):
    """Finds the passages that a model gives the highest probability, by slots."""

    slots: int
    threshold: float | None
    first_steps: FirstSteps

    def check(self) -> None:
        """Refuse options that cannot work; see :meth:`BeamSearch.check`."""
        super().check()
        at_least(1, slots=self.slots)
        self.first_steps = FirstSteps(self.index, self.stops_early)

    def with_beams(self, beams: int) -> Self:
        """The same search with another beam width; both share what is known about the index."""
        other = copy(self)
        other.beams = beams
        return other

    def slots_for(self, queries: int) -> int:
        """The number of slots of a search for ``queries`` queries."""
        return min(self.slots, queries)

    @abstractmethod
    def prepare(self, request: SearchRequest) -> SlotRun:
        """One run of the search."""

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int | None = None,
        exclude: Sequence[Sequence[int]] = (),
        subsets: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode any number of queries; see :meth:`grls.decode.beam.Decoder.search`.

        ``decided`` is called with the number of queries decided since the last call, for a progress bar.
        """
        k = self.checked_k(k)
        if not inputs:
            return []
        refuse_empty(inputs)
        scope = Scope(self.index, len(inputs), exclude, subsets)
        return self.prepare(SearchRequest(inputs, k, scope, decided, prior)).run()

    def frontier(
        self,
        inputs: Sequence[Sequence[int]],
        exclude: Sequence[Sequence[int]] = (),
        subsets: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[Frontier]:
        """The frontier of the search for each query; the arguments are those of :meth:`search`."""
        if not inputs:
            return []
        refuse_empty(inputs)
        scope = Scope(self.index, len(inputs), exclude, subsets)
        gathering = Gathering(self.index, scope, len(inputs))
        self.prepare(SearchRequest(inputs, self.beams, scope, decided, prior, gathering)).run()
        return gathering.frontier()


class SlotRun(BeamRun, ABC):
    """One run of a search over all queries; ``options`` is the decoder with its options."""

    session: SlotSession

    def __init__(self, options: SlotDecoder, request: SearchRequest):
        self.options = options
        self.request = request
        self.index = options.index
        self.scope = request.scope
        self.inputs: list[Sequence[int]] = [*request.inputs]
        self.k_of_query = [request.k] * len(request.inputs)  # the number of passages that each query wants
        self.hits: list[list[ScoredPassage]] = [[] for _ in request.inputs]
        lengths = list(map(len, request.inputs))
        self.waiting = np.argsort(lengths, kind="stable").tolist()  # the longest is taken first
        self.longest = max(lengths)
        self.queries = np.full(options.slots_for(len(lengths)), -1)  # the query of each slot; -1: free
        self.k_of_slot = [request.k] * len(self.queries)  # the number of passages of each slot's query
        self.widths = np.full(len(self.queries), options.beams)  # the beam width of each slot's query
        self.results = [[] for _ in self.queries]
        self.threshold = options.threshold
        self.gathering = request.gathering
        self.masses = None if request.prior is None else self.open_masses(request.prior)

    def open_masses(self, prior: Prior) -> Masses:
        """The masses of priors for the queries in the slots."""
        return prior.open(self.index, self.scope, len(self.queries))

    def run(self) -> list[list[ScoredPassage]]:
        """Decode all queries."""
        while True:  # free slots go to several waiting queries at once, so that the encoder has a batch
            while self.waiting and len(free := self.free(len(self.waiting))):
                taken = [self.waiting.pop() for _ in range(min(len(free), len(self.waiting)))]
                self._begin(np.array(taken), free[: len(taken)])
            if not (self.queries >= 0).any():
                return self.hits
            self.advance()

    @abstractmethod
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        """Start new queries with the best candidates of their first step.

        Args:
            slots: ``[R]`` the slots of the queries.
            nodes: ``[R]`` the node in the session that each query continues.
            best: The candidates of the first step.
        """

    @abstractmethod
    def advance(self) -> None:
        """Every live beam writes one token; decided queries are released."""

    def drop(self, slots: Ints) -> None:
        """Forget the queries of these slots."""
        self.queries[slots] = -1
        for slot in slots.tolist():
            self.results[slot] = []

    def release(self, slots: Ints) -> None:
        """Free the slots of decided queries and report their results."""
        self._report(self.queries[slots], [self.results[slot] for slot in slots.tolist()])
        self.drop(slots)
        self._tell(len(slots))

    def free(self, waiting: int) -> Ints:
        """The free slots, or none as long as there are too few for the queries that wait."""
        free, slots = np.flatnonzero(self.queries < 0), len(self.queries)
        return free if len(free) >= min(slots, waiting, max(_GROUP, slots // _SHARE)) else free[:0]

    def _begin(self, queries: Ints, slots: Ints) -> None:
        """Load the queries that are not decided yet."""
        states = np.full(len(queries), self.index.start(), dtype=np.int64)
        remaining = self.scope.remaining(queries, *self.index.span(states))
        early = self.options.stops_early
        if early:
            alone = queries[remaining == 1]
            if self.gathering is not None:
                nothing = np.zeros(len(alone))
                self.gathering.add(alone, states[: len(alone)], nothing, nothing)
            self._report(alone, [[(0.0, self.index.start())]] * len(alone))
        undecided = remaining > (1 if early else 0)
        self._tell(len(queries) - int(undecided.sum()))
        queries, slots = queries[undecided], slots[undecided]
        if not len(queries):
            return
        inputs = [self.inputs[q] for q in queries]
        with PartTimer("encoder", sum(map(len, inputs))):
            nodes = self.session.load(slots, inputs)
        self.queries[slots] = queries
        gains, normalized = None, False
        if self.masses is not None:
            self.masses.load(slots, queries)
            normalized = self.masses.normalized
            gains = self.options.first_steps.gains(self.masses, slots)
        first_steps = self.options.first_steps
        # A frontier needs all first tokens, also tokens that are not continued.
        widest = int(self.widths[slots].max())
        most = widest if self.gathering is None else len(first_steps.tokens)
        mode = self.options.mode
        with PartTimer("decoder", len(queries)):
            best = first_steps.best(self.session, queries, self.scope, mode, most, gains, normalized)
        self.enter(slots, nodes, best)

    def _tell(self, count: int) -> None:
        if self.request.decided is not None and count:
            self.request.decided(count)

    def _report(self, queries: Ints, results: Sequence[Sequence[tuple[float, int]]]) -> None:
        """Turn the results (score, state) of decided queries into passages."""
        owners: list[int] = []
        scores: list[float] = []
        states: list[int] = []
        most = 0
        for query, pairs in zip(queries.tolist(), results, strict=True):
            most = max(most, self.k_of_query[query])
            for score, state in pairs:
                owners.append(query)
                scores.append(score)
                states.append(state)
        under = np.array(owners, dtype=np.int64), np.array(states, dtype=np.int64)
        for query, score, numbers in zip(owners, scores, self.scope.passages(*under, most), strict=True):
            self.hits[query] += [ScoredPassage(passage, score) for passage in numbers]
        for query in queries.tolist():
            del self.hits[query][self.k_of_query[query] :]
