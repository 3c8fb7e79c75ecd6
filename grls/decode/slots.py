"""The common base of searches by slots: queries wait, take a slot, and leave it when they are decided.

Legend: S slots (queries in flight), R rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np

from grls.decode.beam import BeamRun, BeamSearch, ScoredPassage, SearchRequest
from grls.decode.first_step import Best, FirstSteps
from grls.errors import at_least
from grls.index.rows import Ints
from grls.io.timing import PartTimer
from grls.models.base import alike
from grls.models.sessions.memory import SlotMemory

_SHARE, _GROUP = 4, 8
"""Waiting queries get slots when one slot in four, and at least eight slots (or all), are free: an encoder
that reads two queries at a time takes up to twice as long as one that reads eight."""


class SlotDecoder(BeamSearch):
    slots: int
    first_steps: FirstSteps

    def check(self) -> None:
        super().check()
        at_least(1, slots=self.slots)
        self.first_steps = FirstSteps(self.index, self.stops_early)

    def with_beams(self, beams: int) -> Self:
        """The same search with another beam width; both share what is known about the index."""
        other = copy(self)
        other.beams = beams
        return other

    def slots_for(self, queries: int) -> int:
        return min(self.slots, queries)


class SlotRun(BeamRun):
    """One run of a search over all queries; ``options`` is the decoder with its options."""

    session: SlotMemory

    def __init__(self, options: SlotDecoder, request: SearchRequest):
        lengths = list(map(len, request.inputs))
        super().__init__(options, request, options.slots_for(len(lengths)))
        self.k_of_query = [request.k] * len(lengths)  # the number of passages that each query wants
        self.hits: list[list[ScoredPassage]] = [[] for _ in lengths]
        self.waiting = np.argsort(lengths, kind="stable").tolist()  # the longest is taken first
        self.longest = max(lengths)
        self.queries.fill(-1)  # free slots
        self.widths = np.full(len(self.queries), options.beams)  # the beam width of each slot's query

    def run(self) -> list[list[ScoredPassage]]:
        while True:  # free slots go to several waiting queries at once, so that the encoder has a batch
            while self.waiting and len(free := self.free(len(self.waiting))):
                taken = [self.waiting.pop() for _ in range(min(len(free), len(self.waiting)))]
                self._begin(np.array(taken), free[: len(taken)])
            if not (self.queries >= 0).any():
                return self.hits
            self.advance()

    @abstractmethod
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        """Start R new queries, in ``slots [R]``, with the best candidates of their first step.

        ``nodes [R]`` are the nodes in the session that they continue.
        """

    @abstractmethod
    def advance(self) -> None:
        """Every live beam writes one token; decided queries are released."""

    def drop(self, slots: Ints) -> None:
        self.queries[slots] = -1
        for slot in slots.tolist():
            self.results[slot] = []

    def release(self, slots: Ints) -> None:
        self._report(self.queries[slots], [self.results[slot] for slot in slots.tolist()])
        self.drop(slots)
        self._tell(len(slots))

    def free(self, waiting: int) -> Ints:
        """The free slots, or none as long as there are too few for the queries that wait."""
        free, slots = np.flatnonzero(self.queries < 0), len(self.queries)
        return free if len(free) >= min(slots, waiting, max(_GROUP, slots // _SHARE)) else free[:0]

    def _begin(self, queries: Ints, slots: Ints) -> None:
        undecided, alone = self.undecided(queries)
        self._report(alone, [[(0.0, self.index.start())]] * len(alone))
        self._tell(len(queries) - len(undecided))
        slots = slots[np.isin(queries, undecided)]
        for part in alike(np.array([len(self.inputs[query]) for query in undecided.tolist()], dtype=int)):
            self._load(undecided[part], slots[part])

    def _load(self, queries: Ints, slots: Ints) -> None:
        inputs = [self.inputs[q] for q in queries]
        with PartTimer("encoder", sum(map(len, inputs))):
            nodes = self.session.load(slots, inputs)
        self.queries[slots] = queries
        first_steps, mode = self.options.first_steps, self.options.mode
        if self.masses is not None:
            self.masses.load(slots, queries)
        # A frontier needs all first tokens, also tokens that are not continued.
        widest = int(self.widths[slots].max())
        most = widest if self.gathering is None else len(first_steps.tokens)
        with PartTimer("decoder", len(queries)):
            best = first_steps.best(self.session, queries, self.scope, mode, most, self.masses, slots)
        self.enter(slots, nodes, best)

    def _tell(self, count: int) -> None:
        if self.decided is not None and count:
            self.decided(count)

    def _report(self, queries: Ints, results: Sequence[Sequence[tuple[float, int]]]) -> None:
        for query, pairs in zip(queries.tolist(), results, strict=True):
            self.hits[query] = self.passages_of(query, pairs, self.k_of_query[query])
