"""The loop of all searches by slots: a query waits, takes a slot, and leaves it when it is decided.

Legend: S slots (queries in flight), R rows.

Queries come from a source, also while the search runs; a list is a source that is full at once. A query
has the number of its slot, so memory depends on S alone. It brings its number of passages, its beam width,
its filter and its priors, and gets what it gets in a search of its own.

The way of a query::

    BeamSearch.search, .frontier      passages or spans: the queries (beam)
    SlotDecoder.decode                a list becomes a source (here)
    FastDecoder.run                   makes a run: memory for the slots (fast; decode.gpu for a device)
    SlotRun.run                       until no query is left (here):
      _let_in, _load                    waiting queries are encoded and take slots (here)
      FirstSteps.best                   the first token, the same for all beams (first_step)
      enter                             its best candidates become beams (fast)
      advance                           every beam writes a token (fast):
        continuations                     the tokens that the index allows (beam)
        _feed, log_probabilities          the model reads and scores them (fast, select)
        with_priors                       what priors add (prior)
        finished, BeamRun.cut             whole passages are results, the K best prefixes beams (scope, beam)
      release, outcome                  decided queries leave with their results (here, beam)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np

from grls.decode.beam import BeamQuery, BeamRun, BeamSearch
from grls.decode.first_step import Best, FirstSteps
from grls.decode.frontier import Gathering
from grls.decode.prior import Prior
from grls.decode.scope import Scope
from grls.index.rows import Ints
from grls.io.timing import PartTimer
from grls.models.base import Floats, alike
from grls.models.sessions.memory import SlotMemory, SlotModel

_SHARE, _GROUP = 4, 8
"""Waiting queries get slots when one slot in four, and at least eight slots (or all), are free: an encoder
that reads two queries at a time takes up to twice as long as one that reads eight."""


class QuerySource(Protocol):
    """Where queries come from while a search runs, and where their results go."""

    def waiting(self) -> int: ...

    def take(self, most: int) -> Sequence[BeamQuery]: ...

    def gone(self, owner: Any) -> bool:
        """Whether nobody wants the result of a query any more."""
        ...

    def answer(self, owner: Any, found: Any) -> None:
        """Take the k best passages of a query, or its frontier."""
        ...


class _Listed:
    """A list of queries, longest inputs first; an owner is a place in the list of results."""

    def __init__(self, queries: Sequence[BeamQuery], decided: Callable[[int], object] | None):
        self._left = sorted(queries, key=lambda query: len(query.tokens))
        self._decided = decided
        self.results: list[Any] = [[]] * len(queries)

    def waiting(self) -> int:
        return len(self._left)

    def take(self, most: int) -> list[BeamQuery]:
        return [self._left.pop() for _ in range(min(most, len(self._left)))]

    def gone(self, owner: int) -> bool:
        return False

    def answer(self, owner: int, found: Any) -> None:
        self.results[owner] = found
        if self._decided is not None:
            self._decided(1)


@dataclass
class SlotDecoder(BeamSearch):
    """A search by slots; ``slots`` are queries in flight, S."""

    generator: SlotModel
    slots: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first_steps = FirstSteps(self.index, self.stops_early)

    def with_beams(self, beams: int) -> Self:
        """The same search with another beam width; both share what is known about the index."""
        other = copy(self)
        other.beams = beams
        return other

    @abstractmethod
    def run(
        self, source: QuerySource, longest: int, slots: int | None = None, frontiers: bool = False
    ) -> None:
        """Search for the queries of a source until none is left; they may join while the search runs.

        Inputs have at most ``longest`` tokens.
        """

    def decode(
        self,
        queries: Sequence[BeamQuery],
        decided: Callable[[int], object] | None = None,
        frontiers: bool = False,
    ) -> list[Any]:
        source, longest = _Listed(queries, decided), max(len(query.tokens) for query in queries)
        self.run(source, longest, min(self.slots, len(queries)), frontiers)
        return source.results


class SlotRun(BeamRun):
    """One run of a search.

    Attributes:
        busy: ``[S]`` whether each slot has a query.
        widths: ``[S]`` the beam width of each slot's query.
    """

    session: SlotMemory

    def __init__(self, decoder: SlotDecoder, source: QuerySource, slots: int, frontiers: bool):
        super().__init__(decoder, Scope(decoder.index, slots), slots, decoder.beams)
        if frontiers:
            self.gathering = Gathering(self.index, self.scope, slots)
        self.source = source
        self.asked: list[Any] = [None] * slots  # the last query of each slot
        self.busy = np.zeros(slots, dtype=bool)
        self.widths = np.full(slots, decoder.beams)

    def run(self) -> None:
        while True:
            gone = [n for n in np.flatnonzero(self.busy).tolist() if self.source.gone(self.asked[n].owner)]
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
            self.source.answer(self.asked[slot].owner, self.outcome(slot))

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
                self.widths[slot] = query.beams or self.decoder.beams
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
            if len(undecided) < len(taken):  # the others have one passage, or none
                self.release(np.setdiff1d(taken, undecided))
            lengths = [len(self.asked[slot].tokens) for slot in undecided.tolist()]
            for part in alike(np.array(lengths, dtype=int)):
                self._load(undecided[part])

    def _load(self, slots: Ints) -> None:
        inputs = [self.asked[slot].tokens for slot in slots.tolist()]
        with PartTimer("encoder", sum(map(len, inputs))):
            nodes = self.session.load(slots, inputs)
        self.busy[slots] = True
        first_steps, mode = self.decoder.first_steps, self.decoder.mode
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
        queries = [self.asked[slot] for slot in slots.tolist()]
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
