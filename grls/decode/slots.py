"""The loop of all searches by slots: a query waits, takes a slot, and leaves it when it is decided.

Legend: S slots (queries in flight), R rows.

Queries come from a source, also while the search runs; a list is a source that is full at once. A query
has the number of its slot, so memory depends on S alone. It brings its number of passages, its beam width,
its filter and its priors, and gets what it gets in a search of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from grls.decode.beam import BeamRun, BeamSearch
from grls.decode.first_step import Best, FirstSteps
from grls.decode.frontier import Gathering
from grls.decode.prior import Prior
from grls.decode.scope import Scope
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.io.timing import PartTimer
from grls.models.base import Floats, alike
from grls.models.sessions.memory import SlotMemory

_SHARE, _GROUP = 4, 8
"""Waiting queries get slots when one slot in four, and at least eight slots (or all), are free: an encoder
that reads two queries at a time takes up to twice as long as one that reads eight."""


class SlotQuery(NamedTuple):
    """A query of a search by slots.

    Attributes:
        tokens: The model input as token ids.
        k: Distinct passages, at most the beam width.
        exclude: Numbers of the passages that it may not find.
        subset: The passages that it may find; None: all.
        owner: The name of the query at its source, of any type.
        beams: Its beam width; None: that of the decoder, the largest on a device.
        prior: Its priors. All queries of a source have priors, with the same weights, or none has.
        number: Its number in the priors.
    """

    tokens: Sequence[int]
    k: int
    exclude: Sequence[int]
    subset: Subset | None
    owner: Any
    beams: int | None = None
    prior: Prior | None = None
    number: int = 0


class QuerySource(Protocol):
    """Where queries come from while a search runs, and where their results go."""

    def waiting(self) -> int: ...

    def take(self, most: int) -> Sequence[SlotQuery]: ...

    def gone(self, owner: Any) -> bool:
        """Whether nobody wants the result of a query any more."""
        ...

    def answer(self, owner: Any, found: Any) -> None:
        """Take the k best passages of a query, or its frontier."""
        ...


class _Listed:
    """A list of queries, longest inputs first; an owner is a place in the list of results."""

    def __init__(self, queries: Sequence[SlotQuery], decided: Callable[[int], object] | None):
        self._left = sorted(queries, key=lambda query: len(query.tokens))
        self._decided = decided
        self.results: list[Any] = [[]] * len(queries)

    def waiting(self) -> int:
        return len(self._left)

    def take(self, most: int) -> list[SlotQuery]:
        return [self._left.pop() for _ in range(min(most, len(self._left)))]

    def gone(self, owner: int) -> bool:
        return False

    def answer(self, owner: int, found: Any) -> None:
        self.results[owner] = found
        if self._decided is not None:
            self._decided(1)


class SlotDecoder(BeamSearch):
    slots: int
    first_steps: FirstSteps

    def check(self) -> None:
        super().check()
        self.first_steps = FirstSteps(self.index, self.stops_early)

    def with_beams(self, beams: int) -> Self:
        """The same search with another beam width; both share what is known about the index."""
        other = copy(self)
        other.beams = beams
        return other

    def slots_for(self, queries: int) -> int:
        return min(self.slots, queries)

    @abstractmethod
    def run(
        self, source: QuerySource, longest: int, slots: int | None = None, frontiers: bool = False
    ) -> None:
        """Search for the queries of a source until none is left; they may join while the search runs.

        Inputs have at most ``longest`` tokens.
        """

    def decode(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        subsets: Sequence[Subset | None],
        decided: Callable[[int], object] | None,
        prior: Prior | None,
        frontiers: bool,
    ) -> list[Any]:
        hidden, within = exclude or [()] * len(inputs), subsets or [None] * len(inputs)
        columns = enumerate(zip(inputs, hidden, within, strict=True))
        queries = [SlotQuery(tokens, k, out, some, n, None, prior, n) for n, (tokens, out, some) in columns]
        source = _Listed(queries, decided)
        self.run(source, max(map(len, inputs)), self.slots_for(len(inputs)), frontiers)
        return source.results


class SlotRun(BeamRun):
    """One run of a search; ``options`` is the decoder with its options.

    Attributes:
        busy: ``[S]`` whether each slot has a query.
        widths: ``[S]`` the beam width of each slot's query.
    """

    session: SlotMemory

    def __init__(self, options: SlotDecoder, source: QuerySource, slots: int, frontiers: bool):
        super().__init__(options, Scope(options.index, slots), slots, options.beams)
        if frontiers:
            self.gathering = Gathering(self.index, self.scope, slots)
        self.source = source
        self.asked: list[SlotQuery | None] = [None] * slots  # the last query of each slot
        self.busy = np.zeros(slots, dtype=bool)
        self.widths = np.full(slots, options.beams)

    def run(self) -> None:
        while True:
            gone = [n for n in np.flatnonzero(self.busy).tolist() if self.source.gone(self._query(n).owner)]
            if gone:
                self.drop(np.array(gone))
                for slot in gone:
                    self.outcome(slot)
            self._let_in()
            if not self.busy.any():
                return
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
        self.busy[slots] = False

    def release(self, slots: Ints) -> None:
        """Give back the results of decided queries."""
        self.drop(slots)
        for slot in slots.tolist():
            self._answer(slot)

    def _answer(self, slot: int) -> None:
        self.source.answer(self._query(slot).owner, self.outcome(slot))

    def _query(self, slot: int) -> SlotQuery:
        query = self.asked[slot]
        assert query is not None
        return query

    def _let_in(self) -> None:
        """Give free slots to queries that wait, several at once so that the encoder has a batch."""
        slots = len(self.busy)
        while waiting := self.source.waiting():
            free = np.flatnonzero(~self.busy)
            enough = len(free) >= min(slots, waiting, max(_GROUP, slots // _SHARE))
            new = self.source.take(len(free)) if enough else ()
            if not new:
                return
            taken = free[: len(new)]
            for slot, query in zip(taken.tolist(), new, strict=True):
                self.asked[slot], self.k_of_slot[slot] = query, query.k
                self.widths[slot] = query.beams or self.options.beams
            exclude = [() if query is None else query.exclude for query in self.asked]
            subsets = [None if query is None else query.subset for query in self.asked]
            self.scope = Scope(self.index, slots, exclude, subsets)
            if self.gathering is not None:
                self.gathering.within(self.scope)
            prior = new[0].prior  # the weights of one query are those of all
            if self.masses is not None:
                self.masses.within(self.scope)
            elif prior is not None:
                parts = [
                    replace(part, log_weights=partial(self._log_weights, n))
                    for n, part in enumerate(prior.parts)
                ]
                self.masses = self.open_masses(Prior(tuple(parts), prior.normalized))
            undecided = self.undecided(taken)
            for slot in np.setdiff1d(taken, undecided).tolist():  # one passage, or none
                self._answer(slot)
            lengths = [len(self._query(slot).tokens) for slot in undecided.tolist()]
            for part in alike(np.array(lengths, dtype=int)):
                self._load(undecided[part])

    def _load(self, slots: Ints) -> None:
        inputs = [self._query(slot).tokens for slot in slots.tolist()]
        with PartTimer("encoder", sum(map(len, inputs))):
            nodes = self.session.load(slots, inputs)
        self.busy[slots] = True
        first_steps, mode = self.options.first_steps, self.options.mode
        if self.masses is not None:
            self.masses.load(slots)
        # A frontier needs all first tokens, also tokens that are not continued.
        widest = int(self.widths[slots].max())
        most = widest if self.gathering is None else len(first_steps.tokens)
        with PartTimer("decoder", len(slots)):
            best = first_steps.best(self.session, slots, self.scope, mode, most, self.masses)
        self.enter(slots, nodes, best)

    def _log_weights(self, part: int, slots: Ints) -> Floats:
        """``[n, N]`` log-weights in part ``part`` of the priors for the queries in n slots."""
        queries = [self._query(slot) for slot in slots.tolist()]
        by_prior: dict[int, list[int]] = {}
        for row, query in enumerate(queries):
            by_prior.setdefault(id(query.prior), []).append(row)
        table: list[Floats] = [np.empty(0)] * len(queries)
        for rows in by_prior.values():
            prior = queries[rows[0]].prior
            assert prior is not None
            weights = prior.parts[part].log_weights(np.array([queries[row].number for row in rows]))
            for row, own in zip(rows, weights, strict=True):
                table[row] = own
        return np.stack(table)
