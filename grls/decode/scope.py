"""When a prefix needs no further step, and which passages each query may find.

Without early stop a prefix is finished when it has written the end token. With it, a prefix is finished
as soon as one passage is left under it: under ``renormalized`` scores every further token has probability
one, so this changes no score.

A state covers a range of rows. What a filter allows of them is counted, what is excluded (a chain's earlier
hops, DONE) is subtracted: a state under which nothing is left is not allowed, so neither makes a dead end,
and probabilities are renormalized over what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.index.subset import Several, Subset

Mask = npt.NDArray[np.bool_]


class Scope:
    """What each query of a batch may find.

    Args:
        index: The constraint index.
        queries: Number of queries.
        exclude: For each query, the numbers of passages it may not find (with all their duplicates). Empty:
            nothing is excluded.
        allow: For each query, the passages it may find; None: all of them. Queries may share a subset. Empty:
            every query may find every passage.

    Raises:
        ValueError: ``exclude`` or ``allow`` is not as long as there are queries, or names what is not in the
            index.
    """

    def __init__(
        self,
        index: ConstraintIndex,
        queries: int,
        exclude: Sequence[Sequence[int]] = (),
        allow: Sequence[Subset | None] = (),
    ):
        for name, given in (("exclude", exclude), ("allow", allow)):
            if len(given) not in (0, queries):
                raise ValueError(f"{name} must have one entry a query, {queries}, got {len(given)}")
        count = len(index.rows.row_of)
        wrong = [p for some in exclude for p in some if not 0 <= p < count]
        if wrong:
            raise ValueError(f"the index has {count:,} passages, and {wrong[0]} is the number of none")
        if any(some is not None and not some.belongs(index.rows) for some in allow):
            raise ValueError("a subset belongs to another index")
        self._index = index
        subsets = {id(some): some for some in allow if some is not None}
        place = {name: number for number, name in enumerate(subsets)}
        self._subsets = list(subsets.values())
        self._several = Several([some.rows for some in self._subsets])
        self._subset = np.full(queries, -1)  # which one each query has; -1: none
        if allow:
            self._subset[:] = [-1 if some is None else place[id(some)] for some in allow]
        pairs = {(q, int(index.rows.row_of[p])) for q, some in enumerate(exclude) for p in some}
        self._stride = len(index.rows) + 1
        # One sorted list for all queries: row r of query q stands at q * stride + r.
        self._keys = np.array(sorted(q * self._stride + row for q, row in pairs), dtype=np.int64)
        # What a query's subset does not hold is not subtracted a second time.
        owner, row = np.divmod(self._keys, self._stride)
        self._keys = self._keys[self._allowed(owner, row, row + 1) > 0]

    def remaining(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """Rows of ``low[i]:high[i]`` that query ``queries[i]`` may find, counted."""
        allowed = self._allowed(queries, low, high)
        if not len(self._keys):
            return allowed
        base = queries * self._stride
        return allowed - (np.searchsorted(self._keys, base + high) - np.searchsorted(self._keys, base + low))

    def table(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """Rows of every range that each query may find, ``[queries, ranges]``.

        Args:
            queries: Which queries.
            low: First rows of ranges that stand side by side, ascending.
            high: Their end rows.
        """
        subsets, place = np.unique(self._subset[queries], return_inverse=True)
        counts = np.empty((len(subsets), len(low)), dtype=np.int64)
        for n, subset in enumerate(subsets.tolist()):  # once each, however many queries share it
            same = np.full(len(low), subset)
            counts[n] = high - low if subset < 0 else self._several.count(same, low, high)
        table = counts[place]
        first = np.searchsorted(self._keys, queries * self._stride)
        last = np.searchsorted(self._keys, (queries + 1) * self._stride)
        for n, query in enumerate(queries.tolist()):
            hidden = self._keys[first[n] : last[n]] - query * self._stride
            hidden = hidden[(hidden >= low[0]) & (hidden < high[-1])] if len(low) else hidden[:0]
            np.subtract.at(table[n], np.searchsorted(low, hidden, side="right") - 1, 1)
        return table

    @property
    def subsets(self) -> tuple[Subset, ...]:
        """What queries may find, each subset once."""
        return tuple(self._subsets)

    def lists(self) -> tuple[Ints, Ints, int]:
        """What varies from query to query, for a search that counts elsewhere.

        Returns:
            The hidden rows, row r of query q as ``q * stride + r``, ascending; which subset each query has
            (-1: none), ``[queries]``; and the stride.
        """
        return self._keys, self._subset, self._stride

    def held(self) -> Ints:
        """The rows of the subsets, row r of subset g as ``g * stride + r``, ascending; the stride is that of
        :meth:`lists`.
        """
        rows = [g * self._stride + s.rows.between(0, s.rows.limit) for g, s in enumerate(self._subsets)]
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def concerns(self, queries: Ints) -> bool:
        """Whether any of some queries may not find something."""
        if (self._subset[queries] >= 0).any():
            return True
        first = np.searchsorted(self._keys, queries * self._stride)
        return bool((np.searchsorted(self._keys, (queries + 1) * self._stride) > first).any())

    def allows(self, query: int, passage: int) -> bool:
        """Whether a query may find a passage."""
        row = int(self._index.rows.row_of[passage])
        return passage in self._passages(query, row, row + 1)

    def passages(self, queries: Ints, states: Ints, most: int | None = None) -> list[list[int]]:
        """Numbers of the passages under ``states[i]`` that ``queries[i]`` may find, in row order.

        Args:
            queries: ``[n]``.
            states: ``[n]``.
            most: The first so many of each, of which there are as many as copies of a text; None: all.
        """
        low, high = self._index.span(states)
        whole = (self.remaining(queries, low, high) == high - low) & (self._subset[queries] < 0)
        found = []
        for query, first, last, everything in zip(
            queries.tolist(), low.tolist(), high.tolist(), whole.tolist(), strict=True
        ):
            if everything:
                found.append(self._index.rows.members_in(first, last)[:most].tolist())
            else:
                found.append(self._passages(query, first, last, most))
        return found

    def _passages(self, query: int, low: int, high: int, most: int | None = None) -> list[int]:
        subset, base = int(self._subset[query]), query * self._stride
        found: Iterator[int] = (
            map(int, self._index.rows.members_in(low, high))
            if subset < 0
            else self._subsets[subset].each_in(low, high)
        )
        first, last = np.searchsorted(self._keys, [base + low, base + high])
        hidden = set((self._keys[first:last] - base).tolist())
        if hidden:
            found = (p for p in found if int(self._index.rows.row_of[p]) not in hidden)
        return list(islice(found, most))

    def _allowed(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """Rows of each range that the query's subset holds."""
        subsets = self._subset[queries]
        if not self._subsets or (subsets < 0).all():
            return high - low
        if (subsets >= 0).all():
            return self._several.count(subsets, low, high)
        counts = high - low
        some = np.flatnonzero(subsets >= 0)
        counts[some] = self._several.count(subsets[some], low[some], high[some])
        return counts


def finished(tokens: Ints, remaining: Ints, end: int, early_stop: bool) -> Mask:
    """Which candidates are complete once their token is written.

    Args:
        tokens: ``[A]`` the candidates' tokens.
        remaining: ``[A]`` rows left under each.
        end: The end token.
        early_stop: Stop at the unique prefix.
    """
    ended: Mask = tokens == end
    return ended | (remaining == 1) if early_stop else ended
