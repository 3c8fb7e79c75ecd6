"""Where a search left off: what it knows of everything, also of what it did not write to the end.

Legend: Q queries, A candidates, L leaves of a query, R rows of the index, n rows that are asked for.

A beam search throws away what it weighed and did not follow. But each such prefix has a probability, which is
that of all rows beneath it together; with the prefixes that it finished they divide the whole index, so their
probabilities sum to one (under ``renormalized`` scores). Spread evenly over the rows beneath each, they are
an estimate of every row's probability: exact where the search went to the end, a small one where it turned
back at a word that the query does not speak of. Who ranks passages by many rows each
(:mod:`grls.retrieve.generative.span_scores`) loses nothing of what was computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grls.decode.scope import Scope
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats


class Frontier(NamedTuple):
    """The prefixes at which the search for one query left off, ascending.

    Attributes:
        low: ``[L]`` the first row beneath each.
        high: ``[L]`` the row after its last.
        counts: ``[L]`` rows beneath that the query may find, at least 1.
        scores: ``[L]`` log-probability (nats) of each, with what priors add.
        own: ``[L]`` without what priors add, unless they are normalized.
    """

    low: Ints
    high: Ints
    counts: Ints
    scores: Floats
    own: Floats

    def densest(self, most: int) -> Ints:
        """Numbers of leaves, those first that have most a row, until the query may find ``most`` rows."""
        order = np.argsort(np.log(self.counts) - self.scores, kind="stable")
        before = np.cumsum(self.counts[order]) - self.counts[order]
        found: Ints = order[before < most]
        return found

    def log_probabilities(self, rows: Ints) -> Floats:
        """``[n]`` of some rows (nats), priors left out: their share of the leaf above each.

        Args:
            rows: Rows that the query may find.
        """
        leaf = np.searchsorted(self.low, rows, side="right") - 1
        found: Floats = self.own[leaf] - np.log(self.counts[leaf])
        return found


class Gathering:
    """Takes in leaves while several queries are searched for.

    Args:
        index: What is searched.
        scope: What each query may find.
        queries: Q.
    """

    def __init__(self, index: ConstraintIndex, scope: Scope, queries: int):
        self._index = index
        self._scope = scope
        self._parts: list[list[tuple[Ints, ...]]] = [[] for _ in range(queries)]
        self._scores: list[list[tuple[Floats, Floats]]] = [[] for _ in range(queries)]

    def add(self, queries: Ints, states: Ints, scores: Floats, own: Floats) -> None:
        """Candidates that no beam goes on from.

        Args:
            queries: ``[A]`` the query of each.
            states: ``[A]`` its state in the index.
            scores: ``[A]`` as of :class:`Frontier`.
            own: ``[A]`` likewise.
        """
        low, high = self._index.span(states)
        counts = self._scope.remaining(queries, low, high)
        order = np.argsort(queries, kind="stable")
        order = order[counts[order] > 0]
        if not len(order):
            return
        some, first = np.unique(queries[order], return_index=True)
        for query, part in zip(some.tolist(), np.split(order, first[1:]), strict=True):
            self._parts[query].append((low[part], high[part], counts[part]))
            self._scores[query].append((scores[part], own[part]))

    def frontier(self) -> list[Frontier]:
        """What was taken in, by query; nothing of a query that may find nothing."""
        none = np.empty(0, dtype=np.int64)
        found = []
        for parts, scores in zip(self._parts, self._scores, strict=True):
            low, high, counts = (
                np.concatenate(some) for some in zip((none, none, none), *parts, strict=True)
            )
            given, own = (
                np.concatenate(some) for some in zip((np.empty(0), np.empty(0)), *scores, strict=True)
            )
            order = np.argsort(low, kind="stable")
            found.append(Frontier(low[order], high[order], counts[order], given[order], own[order]))
        return found
