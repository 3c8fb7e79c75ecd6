"""Look-ahead priors for the search: probabilities of passages that are known before decoding.

Legend: Q queries, N passages, R rows of the index, S slots (queries in flight), A candidates (each a beam
continued by one allowed token), B queries that begin, T tokens that may begin a passage.

A prior i gives every passage x a probability P_i(x | query), for example from a bi-encoder or from BM25. A
prefix stands for a range of rows. The prior's mass of a prefix is the sum over this range, and its
probability of a token is the mass of the child among its siblings. The search then ranks prefixes by

    sum over tokens t of  log p(t | before, query) + sum_i w_i log P_i(t | before, query)

For a finished passage this is log p(x | query) + sum_i w_i log P_i(x | query); for a prefix it looks ahead to
all passages under it. Masses count only the passages that a query may find, so filters and exclusions
renormalize priors, too. Passages with equal tokens share a row, whose mass is the sum of their masses.

With ``normalized``, these sums go through a softmax among siblings at every token, and the logs are added up.
This is the product of experts (Hinton 2002); a generator that was trained with a prior (``--data.prior``) is
one of the two experts. Scores are then log-probabilities of passages, and the probabilities sum to one.

The rows of an index may be pieces of passages (spans). Then a piece has an even share of the weight of its
passage (:class:`Pieces`), and weights are computed by passage.

Only rows that a query may find have masses. So a query with a small subset costs little, whatever the size
of the index.

The module does not know texts: the weights of passages come from outside.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from grls.decode.scope import Mask, Scope
from grls.decode.select import ragged_logsumexp
from grls.errors import ConfigError
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.io.progress import counted
from grls.models.base import Floats

LogWeights = Callable[[Ints], Floats]
"""Numbers of n queries -> log-weights of all passages, ``[n, N]``. A constant per query has no effect."""

Scoped = tuple[Ints | None, Mask]
"""The rows of a query's subset, and whether each is not hidden (:meth:`Scope.rows`)."""

LEAST = -600.0
"""Log of the least weight of a passage relative to the best passage, so that no passage is impossible."""


class Fixed(NamedTuple):
    """A passage with a fixed prior probability, instead of its log-weight; the others share the rest.

    Attributes:
        passage: The number of the passage (DONE, which retrievers do not know).
        log_probability: Log-probability (nats, below 0) among the passages that a query may find.
    """

    passage: int
    log_probability: float


class Pieces(NamedTuple):
    """The index holds pieces of passages, each with an even share of the weight of its passage.

    Attributes:
        owners: The passage of each piece.
        log_counts: The log of the number of pieces of each passage.
    """

    owners: Ints
    log_counts: Floats


@dataclass(frozen=True)
class WeightedPrior:
    """One prior.

    Args:
        log_weights: The log-weights of passages: P_i is their softmax over the passages that a query may
            find. It is called when a query starts, for a few queries at once.
        weight: The weight w_i, at least 0, so that no score rises along a path.
        fixed: A passage that the prior does not know, with its probability.
        pieces: The pieces of passages that the index holds; None: it holds passages.
    """

    log_weights: LogWeights
    weight: float
    fixed: Fixed | None = None
    pieces: Pieces | None = None


@dataclass(frozen=True)
class Prior:
    """Several priors, each with its weight; priors of weight 0 are not computed.

    Args:
        parts: The priors.
        normalized: Whether to normalize the combined score of each token over its siblings.
    """

    parts: tuple[WeightedPrior, ...]
    normalized: bool = False

    def among(self, queries: Sequence[int]) -> Prior:
        """The same priors for a selection of the queries, which are renumbered."""
        numbers = np.array(queries, dtype=np.int64)

        def among(log_weights: LogWeights) -> LogWeights:
            return lambda chosen: log_weights(numbers[chosen])

        parts = (replace(part, log_weights=among(part.log_weights)) for part in self.parts)
        return Prior(tuple(parts), self.normalized)


class PriorMasses(ABC):
    """The masses of the queries in flight, however they are stored."""

    def __init__(self, prior: Prior, index: ConstraintIndex, scope: Scope, slots: int):
        self._parts = [part for part in prior.parts if part.weight]
        self.normalized = prior.normalized
        self._index = index
        self._scope = scope

    def within(self, scope: Scope) -> None:
        """Take another scope: what the queries of slots that are loaded from now on may find."""
        self._scope = scope

    def load(self, slots: Ints) -> None:
        """Load the queries of these slots, which have the numbers of the slots in scope and priors."""
        if not len(slots):
            return
        scoped = [self._scope.rows(slot) for slot in slots.tolist()]
        members: dict[int, tuple[Ints, Ints]] = {}  # once for all queries that may find the same rows
        for held, _ in scoped:
            if id(held) not in members:
                members[id(held)] = self._members(held)
        for n, part in enumerate(self._parts):
            pairs = zip(self._log_weights(part, slots), scoped, strict=True)
            masses = [self._masses(part, own, rows, *members[id(rows[0])]) for own, rows in pairs]
            self._put(n, slots, masses, scoped)

    @abstractmethod
    def _put(self, part: int, slots: Ints, masses: list[Floats], scoped: list[Scoped]) -> None:
        """Store the masses of a part for these slots; ``scoped`` has their rows."""

    @abstractmethod
    def table(self, slots: Ints, low: Ints, high: Ints) -> Any:
        """``[B, T]`` the scores of priors for each first token (nats); 0 if no passage under it may be found.

        Args:
            slots: ``[B]`` the slots of the queries.
            low: ``[T]`` the first row under each first token; the ranges are adjacent and ascending.
            high: ``[T]`` the end rows.
        """

    @abstractmethod
    def added(self, slots: Ints, states: Ints) -> Floats:
        """``[n]`` the sum of the priors' scores for each prefix, over all of its tokens (nats).

        Zero for normalized scores, in which the parts cannot be separated.
        """

    def _log_weights(self, part: WeightedPrior, queries: Ints) -> Floats:
        """``[n, N]`` log-weights of passages."""
        weights = np.asarray(part.log_weights(queries), dtype=np.float64)
        count = len(self._index) if part.pieces is None else len(part.pieces.log_counts)
        if weights.shape != (len(queries), count):
            raise ValueError(
                f"expected log-weights of {counted(len(queries), 'query')} and {counted(count, 'passage')}, "
                f"got {weights.shape}"
            )
        if np.isnan(weights).any() or (weights == np.inf).any():
            raise ConfigError("a prior's scores are not numbers (NaN or infinite): its model is damaged.")
        return weights

    def _members(self, held: Ints | None) -> tuple[Ints, Ints]:
        """The passages (or pieces) of rows (None: all) in their order, and the first one of each row."""
        rows = self._index.rows
        numbers = np.arange(len(rows)) if held is None else held
        before = rows.members_before(numbers)
        counts = rows.members_before(numbers + 1) - before
        every = rows.members_in(0, len(rows)) if held is None else rows.members_of(held)
        return every, np.cumsum(counts) - counts

    def _masses(
        self, part: WeightedPrior, weights: Floats, scoped: Scoped, members: Ints, first: Ints
    ) -> Floats:
        """``[R]`` the weight of every row of a query's subset, 0 for a hidden row; the best is near 1.

        ``weights [N]``: log-weights of passages; ``members``: the passages (or pieces) of all these rows;
        ``first [R]``: the first of each row among them.
        """
        held, allowed = scoped
        if part.pieces is not None:
            owners = part.pieces.owners[members]
            logs: Floats = weights[owners] - part.pieces.log_counts[owners]
        else:
            logs = weights[members]
        if len(members) > len(first):  # some passages share a row
            logs = np.logaddexp.reduceat(logs, first)
        fixed = None
        if part.fixed is not None:
            row = int(self._index.rows.row_of[part.fixed.passage])
            fixed = row if held is None else int(np.searchsorted(held, row))
            if held is not None and (fixed == len(held) or held[fixed] != row):
                fixed = None  # its subset is without the passage
        weighed = allowed
        if fixed is not None:
            weighed = allowed.copy()
            weighed[fixed] = False
        top = np.where(weighed, logs, -np.inf).max(initial=-np.inf)
        logs = logs - (top if top > -np.inf else 0.0)
        masses: Floats = np.where(weighed, np.exp(np.clip(logs, LEAST, 0.0)), 0.0)
        if fixed is not None and part.fixed is not None and allowed[fixed]:
            odds = math.exp(part.fixed.log_probability) / -math.expm1(part.fixed.log_probability)
            rest = masses.sum()
            masses[fixed] = odds * (rest if rest > 0 else 1.0)
        return masses


class Masses(PriorMasses):
    """The masses of the queries in flight, for a search on the host.

    Memory: 16 bytes times R (rounded up to a power of two) per slot and prior, where R is the number of rows
        of the largest subset, or of the index.
    Time: R additions when a query is loaded, and 2 log R additions per candidate.
    """

    def __init__(self, prior: Prior, index: ConstraintIndex, scope: Scope, slots: int):
        super().__init__(prior, index, scope, slots)
        self._sums = [RangeSums(slots) for _ in self._parts]

    def _put(self, part: int, slots: Ints, masses: list[Floats], scoped: list[Scoped]) -> None:
        self._sums[part].put(slots, masses)

    def with_priors(self, steps: Floats, slots: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` the score of each candidate (nats), including the scores of priors.

        Args:
            steps: ``[A]`` log-probability of each candidate among its siblings, from the generator.
            slots: ``[A]`` the slot of each candidate's query.
            states: ``[A]`` the state of each candidate in the index.
            offsets: ``[R + 1]`` beam r owns the candidates ``offsets[r]:offsets[r + 1]``.
        """
        scores = steps + self.gains(slots, states, offsets)
        if self.normalized:
            scores = scores - np.repeat(ragged_logsumexp(scores, offsets), np.diff(offsets))
        return scores

    def gains(self, slots: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` the scores of priors for each candidate (nats); 0 for a candidate without siblings.

        The arguments are those of :meth:`with_priors`; the candidates are all that their query may find.
        """
        sizes = np.diff(offsets)
        gains = np.zeros(len(states))
        contested = np.repeat(sizes > 1, sizes)
        if not contested.any() or not self._parts:
            return gains
        counts = sizes[sizes > 1]
        bounds = np.concatenate(([0], np.cumsum(counts)))
        owners = slots[contested]
        low, high = self._between(owners, states[contested])
        for part, sums in zip(self._parts, self._sums, strict=True):
            logs = np.log(sums.over(owners, low, high))
            gains[contested] += part.weight * (logs - np.repeat(ragged_logsumexp(logs, bounds), counts))
        return gains

    def table(self, slots: Ints, low: Ints, high: Ints) -> Floats:
        table = np.zeros((len(slots), len(low)))
        bounds = np.append(low, high[-1])
        for row, slot in enumerate(slots.tolist()):
            ranks = self._scope.ranks(np.full(len(bounds), slot), bounds)
            held = np.flatnonzero(np.diff(ranks))  # first tokens of rows that the query may find
            for part, sums in zip(self._parts, self._sums, strict=True):
                masses = np.add.reduceat(sums.leaves(slot)[: ranks[-1]], ranks[held])
                positive = masses > 0
                logs = np.log(masses[positive] / masses.sum())
                table[row, held[positive]] += part.weight * logs
        return table

    def shares(self, slot: int, rows: Ints) -> Floats:
        """``[n, I]`` log-probabilities (nats) of rows that a slot's query may find, in each of I priors."""
        shares = np.empty((len(rows), len(self._sums)))
        slots = np.full(len(rows), slot)
        ranks, found = self._scope.ranks(slots, rows), self._scope.remaining(slots, rows, rows + 1) > 0
        for part, sums in enumerate(self._sums):
            masses = sums.leaves(slot)
            shares[:, part] = -np.inf
            shares[found, part] = np.log(masses[ranks[found]]) - np.log(masses.sum())
        return shares

    def added(self, slots: Ints, states: Ints) -> Floats:
        added = np.zeros(len(states))
        if self.normalized or not len(states):
            return added
        low, high = self._between(slots, states)
        for part, sums in zip(self._parts, self._sums, strict=True):
            added += part.weight * (np.log(sums.over(slots, low, high)) - np.log(sums.whole(slots)))
        return added

    def _between(self, slots: Ints, states: Ints) -> tuple[Ints, Ints]:
        """The rows under states, as numbers among those that each slot's query may find."""
        low, high = self._index.span(states)
        return self._scope.ranks(slots, low), self._scope.ranks(slots, high)


class RangeSums:
    """Sums over any range of rows, in S slots.

    Each slot has a binary tree, in which a range is at most 2 log R nodes. Differences of cumulative sums
    would need only two look-ups, but would lose all digits of a range with a small mass. Sums of positive
    numbers lose none. It has room for as many rows as the largest slot so far.
    """

    def __init__(self, slots: int):
        self._counts = np.zeros(slots, dtype=np.int64)
        self._size = 1
        self._nodes = np.zeros((slots, 2))

    def put(self, slots: Ints, leaves: Sequence[Floats]) -> None:
        """Set the values of these slots, a row of any length each."""
        largest = max(map(len, leaves))
        if largest > self._size:
            held = [(slot, self.leaves(slot).copy()) for slot in np.flatnonzero(self._counts).tolist()]
            self._size = 1 << (largest - 1).bit_length()
            # Not filled: a slot is read once its values are set, and a search of one query has many slots.
            self._nodes = np.empty((len(self._counts), 2 * self._size))
            for slot, values in held:
                self._fill(slot, values)
        for slot, values in zip(slots.tolist(), leaves, strict=True):
            self._fill(slot, values)

    def _fill(self, slot: int, leaves: Floats) -> None:
        self._counts[slot] = len(leaves)
        nodes, at = self._nodes[slot], self._size
        nodes[at : at + len(leaves)] = leaves
        nodes[at + len(leaves) :] = 0.0
        while at > 1:
            np.add(nodes[at : 2 * at : 2], nodes[at + 1 : 2 * at : 2], out=nodes[at // 2 : at])
            at //= 2

    def leaves(self, slot: int) -> Floats:
        """``[R]`` the values of a slot."""
        return self._nodes[slot, self._size : self._size + int(self._counts[slot])]

    def whole(self, slots: Ints) -> Floats:
        """``[n]`` the sum of all rows of these slots."""
        totals: Floats = self._nodes[slots, 1]
        return totals

    def over(self, slots: Ints, low: Ints, high: Ints) -> Floats:
        """``[n]`` the sum of rows ``low[i]:high[i]`` of ``slots[i]``."""
        first, last = low + self._size, high + self._size
        result = np.zeros(len(low))
        live = np.flatnonzero(first < last)
        while len(live):
            left = live[first[live] & 1 == 1]
            result[left] += self._nodes[slots[left], first[left]]
            first[left] += 1
            right = live[last[live] & 1 == 1]
            last[right] -= 1
            result[right] += self._nodes[slots[right], last[right]]
            first >>= 1
            last >>= 1
            live = live[first[live] < last[live]]
        return result
