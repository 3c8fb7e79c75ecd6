"""A search that queries join while it runs, each when one of its S slots is free.

A query has the number of its slot, so memory depends on S alone. It gets what it gets in a search of its
own: it brings its number of passages, its beam width, its filter, its priors and, where passages are
written by their spans, their ranking by its frontier (:mod:`grls.decode.frontier`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from grls.decode.beam import ScoredPassage, SearchRequest
from grls.decode.frontier import Frontier, Gathering
from grls.decode.prior import Prior
from grls.decode.scope import Scope
from grls.decode.slots import SlotDecoder, SlotRun
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.models.base import Floats


class JoiningQuery(NamedTuple):
    """A query that joins a search.

    Attributes:
        tokens: The model input as token ids.
        k: Distinct passages, at most the beam width.
        exclude: Numbers of the passages that it may not find.
        subset: The passages that it may find; None: all.
        owner: The name of the query at its source, of any type.
        beams: Its beam width; None: that of the decoder, the largest on a device.
        prior: Its priors. All queries of a source have priors, with the same weights, or none has.
        number: Its number in the priors.
        ranked: Ranks the passages by the frontier of its search; None: the passages are what it writes. All
            queries of a source have it, or none has.
    """

    tokens: Sequence[int]
    k: int
    exclude: Sequence[int]
    subset: Subset | None
    owner: Any
    beams: int | None = None
    prior: Prior | None = None
    number: int = 0
    ranked: Callable[[Frontier], list[ScoredPassage]] | None = None


class QuerySource(Protocol):
    """Where queries come from while a search runs, and where their results go."""

    def waiting(self) -> int: ...

    def take(self, most: int) -> Sequence[JoiningQuery]: ...

    def gone(self, owner: Any) -> bool: ...

    def answer(self, owner: Any, passages: list[ScoredPassage]) -> None: ...


class JoinedRun(SlotRun):
    """One run of a search that queries join, with inputs of at most ``longest`` tokens."""

    def __init__(self, decoder: SlotDecoder, source: QuerySource, slots: int, longest: int):
        self.source = source
        self.entered: list[JoiningQuery | None] = [None] * slots
        # Each slot begins with a stand-in of the greatest length, for which the session makes room.
        stand_ins = [[0] * longest] * slots
        super().__init__(decoder, SearchRequest(stand_ins, decoder.beams, Scope(decoder.index, slots)))
        self.k_of_query = self.k_of_slot  # the number of a query is that of its slot
        self.waiting = []  # the stand-ins are not searched
        self._open: set[int] = set()  # slots whose queries have no result yet

    def run(self) -> list[list[ScoredPassage]]:
        while True:
            busy = np.flatnonzero(self.queries >= 0)
            gone = [slot for slot in busy.tolist() if self.source.gone(self._of(slot).owner)]
            if gone:  # nobody wants their results any more
                self.drop(np.array(gone))
                self._open.difference_update(gone)
                if self.gathering is not None:
                    for slot in gone:
                        self.gathering.take(slot)
            self._let_in()
            if not (self.queries >= 0).any():
                return []
            self.advance()

    def _let_in(self) -> None:
        """Give free slots to queries that wait, several at once so that the encoder has a batch."""
        while waiting := self.source.waiting():
            free = self.free(waiting)
            new = self.source.take(len(free)) if len(free) else ()
            if not new:
                return
            taken = free[: len(new)]
            for slot, query in zip(taken.tolist(), new, strict=True):
                self.entered[slot], self.inputs[slot], self.k_of_slot[slot] = query, query.tokens, query.k
                self.widths[slot] = query.beams or self.options.beams
            exclude = [() if query is None else query.exclude for query in self.entered]
            subsets = [None if query is None else query.subset for query in self.entered]
            self.scope = Scope(self.index, len(self.entered), exclude, subsets)
            prior = new[0].prior  # the weights of one query are those of all
            if self.masses is not None:
                self.masses.within(self.scope)
            elif prior is not None:
                parts = [
                    replace(part, log_weights=partial(self._log_weights, n))
                    for n, part in enumerate(prior.parts)
                ]
                self.masses = self.open_masses(Prior(tuple(parts), prior.normalized))
            if self.gathering is not None:
                self.gathering.within(self.scope)
            elif new[0].ranked is not None:  # the frontier of each slot
                self.gathering = Gathering(self.index, self.scope, len(self.queries))
            self._open.update(taken.tolist())
            self._begin(taken, taken)
            for slot in taken.tolist():
                if slot in self._open and self.queries[slot] < 0:  # the query may find nothing
                    self._answer(slot)

    def _log_weights(self, part: int, slots: Ints) -> Floats:
        """``[n, N]`` log-weights in part ``part`` of the priors for the queries in n slots."""
        queries = [query for slot in slots.tolist() if (query := self.entered[slot]) is not None]
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

    def _report(self, queries: Ints, results: Sequence[Sequence[tuple[float, int]]]) -> None:
        if self.gathering is None:
            super()._report(queries, results)
        for query in queries.tolist():
            self._answer(query)

    def _answer(self, slot: int) -> None:
        self._open.remove(slot)
        passages, self.hits[slot] = self.hits[slot], []
        query = self._of(slot)
        if self.gathering is not None and query.ranked is not None:
            passages = query.ranked(self.gathering.take(slot))
        self.source.answer(query.owner, passages)

    def _of(self, slot: int) -> JoiningQuery:
        query = self.entered[slot]
        assert query is not None
        return query
