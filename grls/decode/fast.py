"""Constrained beam search at full speed: the search of :mod:`grls.decode.beam`, and tested against it.

Legend: S slots (queries in flight), K beam width, R live beams of all slots, A candidates, k results a query.

It finds the same passages with the same scores, with less work:

* With ``renormalized`` scores, a beam with one allowed token has nothing to decide. It stays among the beams,
  but its token is not fed until it reaches a branch; then the whole stretch is fed at once.
* Beams are nodes of a tree of tokens (:mod:`grls.models.sessions.forest`), so choosing beams moves no memory.
* All queries have the same first tokens. So the first step is one dense product with a part of the head that
  is cached, and only its best tokens become candidates (:mod:`grls.decode.first_step`).
* The slots of decided queries are given to waiting queries, eight at once or a quarter of the slots, because
  an encoder reads eight inputs in little more time than two. So with up to eight slots, a batch is decided
  before the next one is read; with more slots, no query delays its batch (:mod:`grls.decode.slots`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grls.decode.beam import continuations
from grls.decode.first_step import Best
from grls.decode.scope import Mask, finished
from grls.decode.select import log_probabilities
from grls.decode.slots import QuerySource, SlotDecoder, SlotRun
from grls.index.rows import Ints
from grls.io.timing import PartTimer
from grls.models.base import Floats
from grls.models.sessions.forest import Branches
from grls.models.sessions.memory import TreeMemory


class _Beams(NamedTuple):
    """R live beams: slot (``[R]``, ascending), state in the index, log-probability (nats) of the prefix.

    ``nodes [R]``: the last node that was fed. ``fed [R]``: tokens fed so far, with the start token.
    """

    slots: Ints
    states: Ints
    scores: Floats
    nodes: Ints
    fed: Ints


class FastDecoder(SlotDecoder):
    """The search by a model that keeps tokens as trees."""

    def run(
        self, source: QuerySource, longest: int, slots: int | None = None, frontiers: bool = False
    ) -> None:
        _FastRun(self, source, longest, slots or self.slots, frontiers).run()


class _FastRun(SlotRun):
    session: TreeMemory

    def __init__(self, decoder: FastDecoder, source: QuerySource, longest: int, slots: int, frontiers: bool):
        super().__init__(decoder, source, slots, frontiers)
        self.lazy = decoder.mode == "renormalized"
        self.session = decoder.generator.open_trees(slots, longest)
        self.clock = np.zeros(slots, dtype=np.int64)  # tokens that every beam of a slot has written
        none = np.empty(0, dtype=np.int64)
        self.beams = _Beams(none, none, np.empty(0), none, none)

    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        states = np.full(len(slots), self.index.start())
        start = _Beams(slots, states, np.zeros(len(slots)), nodes, np.ones_like(slots))
        new = self._choose(start, best.rows, best.states, best.scores, best.complete)
        self.clock[slots] = 1
        order = np.argsort(np.concatenate((self.beams.slots, new.slots)), kind="stable")  # slots ascend
        self.beams = _Beams(*(np.concatenate(both)[order] for both in zip(self.beams, new, strict=True)))
        self._release()

    def advance(self) -> None:
        beams = self.beams
        with PartTimer("constraint") as block:
            allowed, rows, remaining = continuations(self.index, self.scope, beams.slots, beams.states)
            block.tokens = len(rows)
        decides = np.diff(allowed.offsets) > 1 if self.lazy else np.ones(len(beams.slots), dtype=bool)
        with PartTimer("decoder", int(decides.sum())):
            beams = self._feed(beams, decides)
            steps: Floats = np.zeros(len(rows))  # zero for the only token of a beam
            if decides.any():
                branching, sizes = decides[rows], np.diff(allowed.offsets)[decides]
                offsets = np.concatenate(([0], np.cumsum(sizes)))
                mode = self.decoder.mode
                steps[branching] = log_probabilities(self.session, allowed.tokens[branching], offsets, mode)
        if self.masses is not None:
            steps = self.masses.with_priors(steps, beams.slots[rows], allowed.states, allowed.offsets)
        scores = beams.scores[rows] + steps
        complete = finished(allowed.tokens, remaining, self.index.rows.end, self.decoder.stops_early)
        self.beams = self._choose(beams, rows, allowed.states, scores, complete)
        self.clock += 1
        self._release()

    def _choose(self, beams: _Beams, rows: Ints, states: Ints, scores: Floats, complete: Mask) -> _Beams:
        """The beams after a step (:meth:`BeamRun.cut`); candidate i continues beam ``rows[i]``, ascending."""
        slots = beams.slots[rows]
        _, live, _ = self.cut(slots, states, scores, complete, self.widths)
        parents = rows[live]
        return _Beams(slots[live], states[live], scores[live], beams.nodes[parents], beams.fed[parents])

    def _feed(self, beams: _Beams, decides: Mask) -> _Beams:
        """Feed the tokens that deciding beams have written since they were last fed."""
        deciding = np.flatnonzero(decides)
        if not len(deciding):
            return beams
        fed = beams.fed[deciding]
        written = self.clock[beams.slots[deciding]] + 1  # with the start token
        lengths = written - fed
        ends = np.cumsum(lengths)
        position = np.arange(int(ends[-1])) + np.repeat(fed - (ends - lengths), lengths)  # 0: the start token
        low, _ = self.index.span(beams.states[deciding])
        tokens = self.index.rows.tokens_at(np.repeat(low, lengths), position - 1)
        nodes = beams.nodes.copy()
        nodes[deciding] = self.session.feed(Branches(beams.slots[deciding], nodes[deciding], lengths, tokens))
        fed = beams.fed.copy()
        fed[deciding] = written
        return beams._replace(nodes=nodes, fed=fed)

    def drop(self, slots: Ints) -> None:
        super().drop(slots)
        stay = ~np.isin(self.beams.slots, slots)
        self.beams = _Beams._make(part[stay] for part in self.beams)

    def _release(self) -> None:
        decided = self.busy.copy()
        decided[self.beams.slots] = False
        if decided.any():
            self.release(np.flatnonzero(decided))
