"""The frontier of a search: the prefixes at which it stopped. It estimates the probability of every row.

Legend: Q queries, A candidates, L prefixes in the frontier of a query, R rows of the index, n requested rows.

The prefixes that a beam search drops and those that it finishes divide the whole index, and the probability
of a prefix is that of all rows under it; so they sum to one (with ``renormalized`` scores). Spread evenly
over the rows of a prefix, it is an estimate for every row: exact for finished prefixes, small for prefixes
that were dropped early. A ranking of passages by many rows each (:mod:`grls.retrieve.generative.span_scores`)
uses all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from grls.decode.scope import Scope
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats


class Frontier(NamedTuple):
    """The prefixes at which the search for one query stopped, in the order of their rows, ``[L]`` each.

    Attributes:
        low: The first row under each prefix; ``high``: the end row.
        counts: Rows under each prefix that the query may find, at least 1.
        scores: Log-probability (nats) of each prefix, including the scores of priors.
        own: The same without the scores of priors, unless these are normalized.
    """

    low: Ints
    high: Ints
    counts: Ints
    scores: Floats
    own: Floats

    def densest(self, most: int) -> Ints:
        """Numbers of prefixes, the highest probability a row first, until they cover ``most`` rows."""
        order = np.argsort(np.log(self.counts) - self.scores, kind="stable")
        before = np.cumsum(self.counts[order]) - self.counts[order]
        chosen: Ints = order[before < most]
        return chosen

    def log_probabilities(self, rows: Ints) -> Floats:
        """``[n]`` log-probabilities of rows (nats), without priors: an equal share of the prefix of each."""
        if not len(self.low):
            return np.full(len(rows), -np.inf)
        prefix = np.searchsorted(self.low, rows, side="right") - 1
        shares: Floats = self.own[prefix] - np.log(self.counts[prefix])
        return shares


class Gathering:
    """Collects the frontiers of several queries during a search.

    In a search that queries join, a query has the number of its slot.
    """

    def __init__(self, index: ConstraintIndex, scope: Scope, queries: int):
        self._index = index
        self._scope = scope
        self._parts: list[list[Frontier]] = [[] for _ in range(queries)]

    def within(self, scope: Scope) -> None:
        """Take another scope. Queries whose frontiers are not taken yet may find the same passages in it."""
        self._scope = scope

    def add(self, queries: Ints, states: Ints, scores: Floats, own: Floats) -> None:
        """Add candidates ``[A]`` that are not continued; for ``own`` see :class:`Frontier`."""
        low, high = self._index.span(states)
        counts = self._scope.remaining(queries, low, high)
        order = np.argsort(queries, kind="stable")
        order = order[counts[order] > 0]
        if not len(order):
            return
        distinct, first = np.unique(queries[order], return_index=True)
        for query, part in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
            columns: tuple[Any, ...] = (low, high, counts, scores, own)
            self._parts[query].append(Frontier(*(column[part] for column in columns)))

    def take(self, query: int) -> Frontier:
        """The frontier of a query, which is forgotten; empty for a query that may find nothing."""
        none = np.empty(0, dtype=np.int64)
        parts = [Frontier(none, none, none, np.empty(0), np.empty(0)), *self._parts[query]]
        self._parts[query] = []
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Frontier(*(column[order] for column in columns))
