"""Which passages each query may find, and when a prefix is finished.

Without early stop, a prefix is finished when its last token is the end token; with it, as soon as one
passage is left under it, for with ``renormalized`` scores every further token has probability one.

A state covers a range of rows. The rows that a filter allows are counted; excluded rows (earlier hops of
a chain, DONE) are subtracted. A state without a row left is not allowed. So there are no dead ends, and
probabilities are renormalized over the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.index.subset import SetCounter, Subset

Mask = npt.NDArray[np.bool_]


class Scope:
    """The passages that each query of a batch may find.

    Args:
        index: The constraint index.
        queries: Number of queries.
        exclude: For each query, the numbers of passages that it may not find (with all their duplicates).
            Empty: nothing is excluded.
        subsets: For each query, the passages that it may find; None: all. Empty: every query may find all.
    """

    def __init__(
        self,
        index: ConstraintIndex,
        queries: int,
        exclude: Sequence[Sequence[int]] = (),
        subsets: Sequence[Subset | None] = (),
    ):
        self._index = index
        self._stride = len(index.rows) + 1
        row_of, keys = index.rows.row_of, set[int]()
        for query, hidden in enumerate(exclude):
            keys.update(query * self._stride + int(row_of[passage]) for passage in hidden)
        self._subsets: list[Subset] = []
        self._subset = np.full(queries, -1)  # the number of each query's subset; -1: no subset
        numbers: dict[int, int] = {}
        for query, subset in enumerate(subsets):
            if subset is None:
                continue
            if id(subset) not in numbers:
                numbers[id(subset)] = len(self._subsets)
                self._subsets.append(subset)
            self._subset[query] = numbers[id(subset)]
        self._listed: dict[int, Ints] = {}
        # One sorted list for all queries: row r of query q is q * stride + r.
        self._keys = np.array(sorted(keys), dtype=np.int64)
        # A row outside of the query's subset must not be subtracted a second time.
        owner, row = np.divmod(self._keys, self._stride)
        self._keys = self._keys[self._allowed(owner, row, row + 1) > 0]

    @cached_property
    def _counter(self) -> SetCounter:
        return SetCounter([subset.rows for subset in self._subsets])

    def remaining(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """The number of rows of ``low[i]:high[i]`` that query ``queries[i]`` may find."""
        allowed = self._allowed(queries, low, high)
        if not len(self._keys):
            return allowed
        base = queries * self._stride
        return allowed - (np.searchsorted(self._keys, base + high) - np.searchsorted(self._keys, base + low))

    def table(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """``[queries, ranges]`` the number of rows of ``low[i]:high[i]`` that each query may find.

        The ranges are adjacent and ascending.
        """
        subsets, group = np.unique(self._subset[queries], return_inverse=True)
        counts = np.empty((len(subsets), len(low)), dtype=np.int64)
        for n, subset in enumerate(subsets.tolist()):  # each subset once, for all of its queries
            same = np.full(len(low), subset)
            counts[n] = high - low if subset < 0 else self._counter.count(same, low, high)
        table = counts[group]
        first = np.searchsorted(self._keys, queries * self._stride)
        last = np.searchsorted(self._keys, (queries + 1) * self._stride)
        for n, query in enumerate(queries.tolist()):
            hidden = self._keys[first[n] : last[n]] - query * self._stride
            hidden = hidden[(hidden >= low[0]) & (hidden < high[-1])] if len(low) else hidden[:0]
            np.subtract.at(table[n], np.searchsorted(low, hidden, side="right") - 1, 1)
        return table

    def rows(self, query: int) -> tuple[Ints | None, Mask]:
        """The rows of a query's subset, ascending (None: all rows), and whether each is not hidden."""
        number = int(self._subset[query])
        if number >= 0 and number not in self._listed:  # each subset is listed once
            self._listed[number] = self._subsets[number].rows.between(0, self._stride - 1)
        held = self._listed.get(number)
        first, last = np.searchsorted(self._keys, [query * self._stride, (query + 1) * self._stride])
        hidden = self._keys[first:last] - query * self._stride
        may = np.ones(self._stride - 1 if held is None else len(held), dtype=bool)
        may[hidden if held is None else np.searchsorted(held, hidden)] = False
        return held, may

    def ranks(self, queries: Ints, rows: Ints) -> Ints:
        """The number of rows of each query's subset that come before a row of the index."""
        return self._allowed(queries, np.zeros_like(rows), rows)

    @property
    def subsets(self) -> tuple[Subset, ...]:
        return tuple(self._subsets)

    def hidden_and_subsets(self) -> tuple[Ints, Ints, int]:
        """For a search on another device: the hidden rows, row r of query q as ``q * stride + r``,
        ascending; the number of each query's subset (-1: none), ``[queries]``; and the stride.
        """
        return self._keys, self._subset, self._stride

    def held(self) -> Ints:
        """The rows of all subsets, ascending: row r of subset g as ``g * stride + r``."""
        rows = [g * self._stride + s.rows.between(0, s.rows.limit) for g, s in enumerate(self._subsets)]
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def concerns(self, queries: Ints) -> bool:
        """Whether a passage is hidden from any of these queries."""
        if (self._subset[queries] >= 0).any():
            return True
        first = np.searchsorted(self._keys, queries * self._stride)
        return bool((np.searchsorted(self._keys, (queries + 1) * self._stride) > first).any())

    def allows(self, query: int, passage: int) -> bool:
        row = int(self._index.rows.row_of[passage])
        return passage in self._passages(query, row, row + 1)

    def passages(self, queries: Ints, states: Ints, most: int | None = None) -> list[list[int]]:
        """Numbers of the passages under ``states[i]`` that ``queries[i]`` may find, in row order.

        ``most``: the most passages of each state (one text may have many copies).
        """
        low, high = self._index.span(states)
        unfiltered = (self.remaining(queries, low, high) == high - low) & (self._subset[queries] < 0)
        numbers = []
        for query, first, last, all_rows in zip(
            queries.tolist(), low.tolist(), high.tolist(), unfiltered.tolist(), strict=True
        ):
            if all_rows:
                numbers.append(self._index.rows.members_in(first, last)[:most].tolist())
            else:
                numbers.append(self._passages(query, first, last, most))
        return numbers

    def _passages(self, query: int, low: int, high: int, most: int | None = None) -> list[int]:
        subset, base = int(self._subset[query]), query * self._stride
        members: Iterator[int] = (
            map(int, self._index.rows.members_in(low, high))
            if subset < 0
            else self._subsets[subset].each_in(low, high)
        )
        first, last = np.searchsorted(self._keys, [base + low, base + high])
        hidden = set((self._keys[first:last] - base).tolist())
        if hidden:
            members = (p for p in members if int(self._index.rows.row_of[p]) not in hidden)
        return list(islice(members, most))

    def _allowed(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        subsets, counts = self._subset[queries], high - low
        filtered = np.flatnonzero(subsets >= 0)
        if len(filtered):
            counts[filtered] = self._counter.count(subsets[filtered], low[filtered], high[filtered])
        return counts


def finished(tokens: Ints, remaining: Ints, end: int, early_stop: bool) -> Mask:
    """``[A]`` whether each candidate is complete with its token; ``remaining [A]``: rows left under it."""
    ended: Mask = tokens == end
    return ended | (remaining == 1) if early_stop else ended
