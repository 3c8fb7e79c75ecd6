"""What is known of the passages before one is written: look-ahead priors for the search.

Legend: Q queries, N passages, R rows of the index, P places (queries in flight), A candidates (each a beam
continued by one allowed token), B queries that begin, T tokens that may begin a passage.

A prior i gives every passage x a probability P_i(x | query), whatever it knows it from: a bi-encoder, BM25,
the model itself under an empty prompt. A prefix stands for a range of rows, so the prior's mass of a prefix
is a sum over that range, and the prior has a probability for every token: the child's mass among its
siblings'. The search then ranks prefixes by

    sum over tokens t of  log p(t | before, query) + sum_i w_i log P_i(t | before, query)

which for a finished passage is log p(x | query) + sum_i w_i log P_i(x | query), and for a prefix looks ahead
to all the passages beneath it. Masses are those of what a query may find, so filters and exclusions
renormalize priors, too. Passages with equal tokens share a row, whose mass is the sum of theirs.

Or, ``normalized``, by the sum over tokens of the log of what the softmax of that makes of each among its
siblings: the product of experts (Hinton 2002), which a generator that was trained beside a prior
(``--data.prior``) is one half of. Then scores are log-probabilities of passages, and sum to one.

A weight may be negative: with P_i the model's own probabilities under an empty prompt it takes back what the
model favours whatever is asked (the anti-language model of Li et al. 2016, arXiv 1510.03055, there over
replies). Scores can then rise along a path, by as much as :meth:`Masses.rise` says.

The module knows nothing of text: what passages weigh comes from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from grls.decode.scope import Mask, Scope
from grls.decode.scores import ragged_logsumexp
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats

LogWeights = Callable[[Ints], Floats]
"""Numbers of n queries -> log-weights of all passages, ``[n, N]``; a constant a query changes nothing."""

LEAST = -600.0
"""Log of the least weight that a passage can have, relative to the best one: so that none is impossible."""


class Fixed(NamedTuple):
    """A passage whose prior probability is given, whatever the log-weights say; the others share the rest.

    Attributes:
        passage: Its number (DONE, of which retrievers know nothing).
        log_probability: Nats, below 0; among what a query may find.
    """

    passage: int
    log_probability: float


@dataclass(frozen=True)
class WeightedPrior:
    """One prior.

    Args:
        log_weights: What passages weigh: P_i is their softmax over what a query may find. It is asked when a
            query gets its turn, for a few at once.
        weight: w_i.
        fixed: A passage of which it knows nothing.

    Raises:
        ConfigError: The weight is no number, or the fixed probability is not between 0 and 1.
    """

    log_weights: LogWeights
    weight: float
    fixed: Fixed | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise ConfigError(f"the weight of a prior must be a finite number, got {self.weight}.")
        if self.fixed is not None and not -math.inf < self.fixed.log_probability < 0:
            raise ConfigError(
                "a fixed log-probability of a prior must be a finite number below 0, got "
                f"{self.fixed.log_probability}."
            )


@dataclass(frozen=True)
class Prior:
    """Several priors, each with its weight; those of weight 0 are not asked.

    Args:
        parts: The priors.
        normalized: What they make of each token's score is normalized over its siblings.
    """

    parts: tuple[WeightedPrior, ...]
    normalized: bool = False

    def among(self, queries: Sequence[int]) -> Prior:
        """The same for some of the queries, which are numbered anew."""
        numbers = np.array(queries, dtype=np.int64)
        return Prior(
            tuple(replace(part, log_weights=_Among(part.log_weights, numbers)) for part in self.parts),
            self.normalized,
        )

    def open(self, index: ConstraintIndex, scope: Scope, places: int) -> Masses:
        """Make it ready for one search with so many queries in flight."""
        return Masses(self, index, scope, places)


@dataclass(frozen=True)
class _Among:
    """Log-weights of queries that are numbered anew."""

    every: LogWeights
    numbers: Ints

    def __call__(self, queries: Ints) -> Floats:
        return self.every(self.numbers[queries])


class Masses:
    """The masses of the queries in flight.

    Memory: 16 bytes times R (rounded up to a power of two) a place and prior, twice that where its weight is
    negative. Time: R additions when a query is loaded, and 2 log R additions a candidate.

    Args:
        prior: What to weigh.
        index: Whose passages.
        scope: What each query may find.
        places: P.
    """

    def __init__(self, prior: Prior, index: ConstraintIndex, scope: Scope, places: int):
        self._parts = [part for part in prior.parts if part.weight]
        self.normalized = prior.normalized
        self._index = index
        self._scope = scope
        rows = len(index.rows)
        self._sums = [Ranges(np.add, 0.0, places, rows) for _ in self._parts]
        self._least = [
            Ranges(np.minimum, np.inf, places, rows) if part.weight < 0 else None for part in self._parts
        ]

    def load(self, places: Ints, queries: Ints) -> None:
        """Take the queries ``queries[i]`` in at ``places[i]``, in place of what stood there.

        Raises:
            ConfigError: A log-weight is not a number.
            ValueError: The log-weights are not one a passage.
        """
        if not len(queries) or not self._parts:
            return
        rows = np.arange(len(self._index.rows))
        allowed = self._scope.table(queries, rows, rows + 1) > 0
        for part, sums, least in zip(self._parts, self._sums, self._least, strict=True):
            masses = self._masses(part, queries, allowed)
            sums.put(places, masses)
            if least is not None:
                least.put(places, np.where(allowed, masses, np.inf))

    def weigh(self, steps: Floats, places: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` the score of each candidate (nats) with what the priors add.

        Args:
            steps: ``[A]`` what the generator gives each candidate: log-probabilities among its siblings.
            places: ``[A]`` where the query of each candidate stands.
            states: ``[A]`` its state in the index.
            offsets: ``[R + 1]`` which candidates continue each beam.
        """
        scores = steps + self.gains(places, states, offsets)
        if self.normalized:
            scores = scores - np.repeat(ragged_logsumexp(scores, offsets), np.diff(offsets))
        return scores

    def gains(self, places: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` what the priors add to the score of each candidate (nats); 0 where it has no sibling.

        Args:
            places: ``[A]`` where the query of each candidate stands.
            states: ``[A]`` its state in the index; candidates are all that their query may find.
            offsets: ``[R + 1]`` which candidates continue each beam.
        """
        sizes = np.diff(offsets)
        gains = np.zeros(len(states))
        asked = np.repeat(sizes > 1, sizes)
        if not asked.any() or not self._parts:
            return gains
        kept = sizes[sizes > 1]
        bounds = np.concatenate(([0], np.cumsum(kept)))
        low, high = self._index.span(states[asked])
        for part, sums in zip(self._parts, self._sums, strict=True):
            logs = np.log(sums.over(places[asked], low, high))
            gains[asked] += part.weight * (logs - np.repeat(ragged_logsumexp(logs, bounds), kept))
        return gains

    def table(self, places: Ints, low: Ints, high: Ints) -> Floats:
        """``[B, T]`` what the priors add to each first token (nats); 0 where nothing may be found under it.

        Args:
            places: ``[B]`` where the queries stand.
            low: ``[T]`` first rows under each first token; the ranges stand side by side, ascending.
            high: ``[T]`` their end rows.
        """
        table = np.zeros((len(places), len(low)))
        for part, sums in zip(self._parts, self._sums, strict=True):
            masses = np.add.reduceat(sums.leaves(places)[:, : high[-1]], low, axis=1)
            total = masses.sum(axis=1, keepdims=True)
            some = masses > 0
            table[some] += part.weight * np.log((masses / total)[some])
        return table

    def shares(self, place: int, rows: Ints) -> Floats:
        """``[n, I]`` the log-probability that each of the I priors gives some rows (nats).

        Args:
            place: Where their query stands.
            rows: ``[n]`` rows that it may find.
        """
        found = np.empty((len(rows), len(self._sums)))
        for part, sums in enumerate(self._sums):
            masses = sums.leaves(np.array([place]))[0]
            found[:, part] = np.log(masses[rows]) - np.log(masses.sum())
        return found

    def added(self, places: Ints, states: Ints) -> Floats:
        """``[n]`` what the priors have added to the score of each prefix, from its first token on (nats).

        Of normalized scores nothing can be told apart: zero.

        Args:
            places: ``[n]`` where the query of each stands.
            states: ``[n]`` its state in the index.
        """
        added = np.zeros(len(states))
        if self.normalized or not len(states):
            return added
        low, high = self._index.span(states)
        for part, sums in zip(self._parts, self._sums, strict=True):
            added += part.weight * (np.log(sums.over(places, low, high)) - np.log(sums.whole(places)))
        return added

    def rise(self, places: Ints, states: Ints) -> Floats:
        """``[n]`` by how much the score of each prefix can rise at most until it is finished (nats).

        It is what a negative weight can still add: that of the least likely passage beneath. Normalized
        scores never rise.
        """
        rise = np.zeros(len(states))
        if not len(states) or self.normalized:
            return rise
        low, high = self._index.span(states)
        for part, sums, least in zip(self._parts, self._sums, self._least, strict=True):
            if least is not None:
                mass, bottom = sums.over(places, low, high), least.over(places, low, high)
                rise -= part.weight * np.log(mass / bottom)
        return rise

    def _masses(self, part: WeightedPrior, queries: Ints, allowed: Mask) -> Floats:
        """``[n, R]`` the weight of every row, 0 where it may not be found; the best is near 1."""
        rows = self._index.rows
        given = np.asarray(part.log_weights(queries), dtype=np.float64)
        if given.shape != (len(queries), len(self._index)):
            raise ValueError(
                f"expected log-weights of {len(queries)} queries and {len(self._index):,} passages, got "
                f"{given.shape}"
            )
        if np.isnan(given).any() or (given == np.inf).any():
            raise ConfigError("a prior's scores are not numbers (NaN or infinite): its model is damaged.")
        logs = given[:, rows.members_in(0, len(rows))]
        if rows.shared:
            logs = np.logaddexp.reduceat(logs, rows.members_before(np.arange(len(rows))), axis=1)
        fixed = None if part.fixed is None else int(rows.row_of[part.fixed.passage])
        heard = allowed
        if fixed is not None:
            heard = allowed.copy()
            heard[:, fixed] = False
        top = np.where(heard, logs, -np.inf).max(axis=1, keepdims=True)
        logs = logs - np.where(top > -np.inf, top, 0.0)
        masses: Floats = np.where(heard, np.exp(np.clip(logs, LEAST, 0.0)), 0.0)
        if fixed is not None and part.fixed is not None:
            odds = math.exp(part.fixed.log_probability) / -math.expm1(part.fixed.log_probability)
            others = masses.sum(axis=1)
            masses[:, fixed] = np.where(allowed[:, fixed], odds * np.where(others > 0, others, 1.0), 0.0)
        return masses


class Ranges:
    """A reduction (sum, minimum) over any range of rows, for P places side by side.

    A binary tree a place: a range is at most 2 log R of its nodes. Differences of cumulative sums would be
    two look-ups, and lose all digits of a range whose mass is small; sums of positive numbers lose none.

    Args:
        work: The reduction.
        neutral: What it gives for nothing.
        places: P.
        rows: R.
    """

    def __init__(self, work: np.ufunc, neutral: float, places: int, rows: int):
        self._work = work
        self._neutral = neutral
        self._rows = rows
        self._size = 1 << max(rows - 1, 0).bit_length()
        self._nodes = np.full((places, 2 * self._size), neutral)

    def put(self, places: Ints, leaves: Floats) -> None:
        """Set the values ``[n, R]`` of some places."""
        level = np.full((len(places), self._size), self._neutral)
        level[:, : self._rows] = leaves
        at = self._size
        while at:
            self._nodes[places, at : 2 * at] = level
            level = self._work(level[:, ::2], level[:, 1::2]) if at > 1 else level
            at //= 2

    def leaves(self, places: Ints) -> Floats:
        """``[n, R]`` the values of some places."""
        return self._nodes[places, self._size : self._size + self._rows]

    def whole(self, places: Ints) -> Floats:
        """``[n]`` the reduction of all rows of some places."""
        found: Floats = self._nodes[places, 1]
        return found

    def over(self, places: Ints, low: Ints, high: Ints) -> Floats:
        """``[n]`` the reduction of rows ``low[i]:high[i]`` at ``places[i]``."""
        first, last = low + self._size, high + self._size
        found = np.full(len(low), self._neutral)
        live = np.flatnonzero(first < last)
        while len(live):
            left = live[first[live] & 1 == 1]
            found[left] = self._work(found[left], self._nodes[places[left], first[left]])
            first[left] += 1
            right = live[last[live] & 1 == 1]
            last[right] -= 1
            found[right] = self._work(found[right], self._nodes[places[right], last[right]])
            first >>= 1
            last >>= 1
            live = live[first[live] < last[live]]
        return found
