"""What searches by slots share: queries wait, take a slot, and leave it when they are decided.

Legend: S slots (queries in flight), R rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from grls.decode.beam import BeamSearch, ScoredPassage, refuse_empty
from grls.decode.first_step import Best, FirstSteps
from grls.decode.frontier import Frontier, Gathering
from grls.decode.prior import Prior
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.models.base import SlotSession

_SHARE, _GROUP = 4, 8
"""Waiting queries are given slots when one in so many is free, but so many at least (or all): an encoder that
reads queries two by two takes up to twice as long as one that reads eight."""


class SearchRequest(NamedTuple):
    """What is asked of a search.

    Attributes:
        inputs: Model inputs as token ids.
        k: Distinct passages a query.
        scope: What each query may find.
        decided: Called with the number of queries decided since the last call.
        prior: What is known of the passages beforehand.
        gathering: Takes in where the search leaves off.
    """

    inputs: Sequence[Sequence[int]]
    k: int
    scope: Scope
    decided: Callable[[int], object] | None
    prior: Prior | None = None
    gathering: Gathering | None = None


class SlotDecoder(BeamSearch, ABC):
    """Finds the passages that a model gives the highest probability, by slots."""

    slots: int
    first_steps: FirstSteps

    def check(self) -> None:
        """Refuse options that cannot work; see :meth:`BeamSearch.check`."""
        super().check()
        if self.slots < 1:
            raise ConfigError(f"slots must be at least 1, got {self.slots}.")
        self.first_steps = FirstSteps(self.index, self.stops_early)

    def places(self, queries: int) -> int:
        """Slots that a search for so many queries takes."""
        return min(self.slots, queries)

    @abstractmethod
    def prepare(self, ask: SearchRequest) -> SlotSearch:
        """One run of the search."""

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int | None = None,
        exclude: Sequence[Sequence[int]] = (),
        allow: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode any number of queries.

        What is not explained here is as of :meth:`grls.decode.beam.Decoder.search`, errors too.

        Args:
            inputs: Model inputs as token ids.
            k: Distinct passages a query.
            exclude: What each query may not find.
            allow: What each query may find.
            decided: Called with the number of queries decided since the last call, for a progress bar.
            prior: What is known of the passages beforehand.

        Returns:
            For each query at most k passages, best first.
        """
        k = self.results_asked(k)
        if not inputs:
            return []
        refuse_empty(inputs)
        scope = Scope(self.index, len(inputs), exclude, allow)
        return self.prepare(SearchRequest(inputs, k, scope, decided, prior)).run()

    def frontier(
        self,
        inputs: Sequence[Sequence[int]],
        exclude: Sequence[Sequence[int]] = (),
        allow: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[Frontier]:
        """Where the search for each query leaves off; arguments as of :meth:`search`."""
        if not inputs:
            return []
        refuse_empty(inputs)
        scope = Scope(self.index, len(inputs), exclude, allow)
        gathering = Gathering(self.index, scope, len(inputs))
        self.prepare(SearchRequest(inputs, self.beams, scope, decided, prior, gathering)).run()
        return gathering.frontier()


class SlotSearch(ABC):
    """One run of a search over all queries.

    Args:
        options: Its options.
        ask: What is asked.
    """

    session: SlotSession

    def __init__(self, options: SlotDecoder, ask: SearchRequest):
        self.options = options
        self.ask = ask
        self.index = options.index
        self.scope = ask.scope
        self.found: list[list[ScoredPassage]] = [[] for _ in ask.inputs]
        lengths = [len(tokens) for tokens in ask.inputs]
        self.waiting = sorted(range(len(lengths)), key=lambda i: lengths[i])  # the longest is taken first
        self.longest = max(lengths)
        self.queries = np.full(options.places(len(lengths)), -1)  # of each slot; -1: free
        self.masses = None if ask.prior is None else ask.prior.open(self.index, self.scope, len(self.queries))

    def run(self) -> list[list[ScoredPassage]]:
        """Decode all queries."""
        while True:
            self._refill()
            if not (self.queries >= 0).any():
                return self.found
            self.advance()

    @abstractmethod
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        """Begin with what is best after the first step of the queries just loaded.

        Args:
            slots: ``[R]`` where they are.
            nodes: ``[R]`` what each writes on from, as the session numbers it.
            best: The candidates of that step.
        """

    @abstractmethod
    def advance(self) -> None:
        """Every live beam writes one token; decided queries are released."""

    def release(self, slots: Ints, results: Sequence[Sequence[tuple[float, int]]]) -> None:
        """Give up the slots of decided queries, whose results (score, state) are these, best first."""
        self._report(self.queries[slots], results)
        self.queries[slots] = -1
        self._tell(len(slots))

    def _refill(self) -> None:
        """Give free slots to waiting queries, several at once so that the encoder has a batch."""
        while self.waiting:
            free = np.flatnonzero(self.queries < 0)
            slots = len(self.queries)
            if len(free) < min(slots, len(self.waiting), max(_GROUP, slots // _SHARE)):
                return
            taken = [self.waiting.pop() for _ in range(min(len(free), len(self.waiting)))]
            self._begin(np.array(taken), free[: len(taken)])

    def _begin(self, queries: Ints, slots: Ints) -> None:
        """Load the queries that have anything to decide."""
        states = np.full(len(queries), self.index.start(), dtype=np.int64)
        remaining = self.scope.remaining(queries, *self.index.span(states))
        early = self.options.stops_early
        if early:
            alone = queries[remaining == 1]
            self._report(alone, [[(0.0, self.index.start())]] * len(alone))
            if self.ask.gathering is not None:
                nothing = np.zeros(len(alone))
                self.ask.gathering.add(alone, states[: len(alone)], nothing, nothing)
        undecided = remaining > (1 if early else 0)
        self._tell(len(queries) - int(undecided.sum()))
        queries, slots = queries[undecided], slots[undecided]
        if not len(queries):
            return
        nodes = self.session.load(slots, [self.ask.inputs[q] for q in queries])
        self.queries[slots] = queries
        gains, normalized = None, False
        if self.masses is not None:
            self.masses.load(slots, queries)
            normalized = self.masses.normalized
            gains = self.options.first_steps.gains(self.masses, slots)
        first_steps = self.options.first_steps
        # Where leaves are gathered, all beginnings are: those that no beam goes on from, too.
        most = self.options.beams if self.ask.gathering is None else len(first_steps.tokens)
        best = first_steps.best(self.session, queries, self.scope, self.options.mode, most, gains, normalized)
        self.enter(slots, nodes, best)

    def _tell(self, count: int) -> None:
        if self.ask.decided is not None and count:
            self.ask.decided(count)

    def _report(self, queries: Ints, results: Sequence[Sequence[tuple[float, int]]]) -> None:
        """Turn the results (score, state) of decided queries into what they found."""
        owners = np.repeat(queries, [len(some) for some in results])
        scores = [score for some in results for score, _ in some]
        states = np.array([state for some in results for _, state in some], dtype=np.int64)
        passages = self.scope.passages(owners, states, self.ask.k)
        for query, score, some in zip(owners.tolist(), scores, passages, strict=True):
            self.found[query] += [ScoredPassage(passage, score) for passage in some]
        for query in queries.tolist():
            del self.found[query][self.ask.k :]
