"""Counts selected passages of an index in ranges of rows, for filters.

Legend: N passages, R rows, n members of a set. A state stands for a range of rows, so the number of
selected rows under it is the difference of two ranks. A small set is a sorted list (8 bytes a member), a
large one a bit vector with a running count for each word (a bit and a half a row).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from grls.index.rows import Ints, SortedRows

_WORD = 64
_BYTES_A_WORD = 12
_BYTES_A_MEMBER = 8

Words = npt.NDArray[np.uint64]


class NumberSet:
    """A set of numbers below ``limit`` that counts its members in a range; ``numbers [n]`` ascend."""

    def __init__(self, numbers: Ints, limit: int):
        self.limit = limit
        self.size = len(numbers)
        self.sparse = self.size * _BYTES_A_MEMBER <= (limit // _WORD + 1) * _BYTES_A_WORD
        if self.sparse:
            self.list = numbers.astype(np.int64)
            return
        marked = np.zeros((limit // _WORD + 1) * _WORD, dtype=bool)
        marked[numbers] = True
        self.words: Words = np.packbits(marked, bitorder="little").view("<u8").astype(np.uint64)
        counts = np.bitwise_count(self.words).astype(np.int64)
        self.ranks = (np.cumsum(counts) - counts).astype(np.uint32 if limit < 1 << 32 else np.int64)

    def between(self, low: int, high: int) -> Ints:
        if self.sparse:
            first, last = np.searchsorted(self.list, [low, high])
            return self.list[first:last]
        first = low // _WORD
        words = self.words[first : -(-high // _WORD)]
        marked = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
        return low + np.flatnonzero(marked[low - first * _WORD : high - first * _WORD])

    def holds(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        if self.sparse:
            return np.isin(numbers, self.list)
        bits = self.words[numbers // _WORD] >> (numbers % _WORD).astype(np.uint64)
        return (bits & np.uint64(1)).astype(bool)

    def __contains__(self, number: int) -> bool:
        return len(self.between(number, number + 1)) == 1


class SetCounter:
    """Several sets with the same limit, counted in one call."""

    def __init__(self, sets: Sequence[NumberSet]):
        self._stride = 1 + (sets[0].limit if sets else 0)
        self._sparse = np.zeros(len(sets), dtype=bool)
        keys, words, ranks = [np.empty(0, dtype=np.int64)], [], []
        for number, each in enumerate(sets):
            self._sparse[number] = each.sparse
            if each.sparse:
                keys.append(number * self._stride + each.list)
            else:
                words.append(each.words)
                ranks.append(each.ranks)
        self._keys = np.concatenate(keys)
        self._first_word = np.cumsum(~self._sparse) - 1
        if words:
            self._first_word *= len(words[0])
            self._words, self._ranks = np.concatenate(words), np.concatenate(ranks)

    def count(self, sets: Ints, low: Ints, high: Ints) -> Ints:
        """The number of members of set ``sets[i]`` from ``low[i]`` to below ``high[i]``."""
        if self._sparse.all():
            return self._in_lists(sets, high) - self._in_lists(sets, low)
        if not self._sparse.any():
            return self._in_words(sets, high) - self._in_words(sets, low)
        counts = np.empty(len(sets), dtype=np.int64)
        for kind, before in ((True, self._in_lists), (False, self._in_words)):
            chosen = np.flatnonzero(self._sparse[sets] == kind)
            counts[chosen] = before(sets[chosen], high[chosen]) - before(sets[chosen], low[chosen])
        return counts

    def _in_lists(self, sets: Ints, numbers: Ints) -> Ints:
        """Members below each number, plus all members of earlier sets (which a difference cancels)."""
        return np.searchsorted(self._keys, sets * self._stride + numbers)

    def _in_words(self, sets: Ints, numbers: Ints) -> Ints:
        word = self._first_word[sets] + numbers // _WORD
        below = (np.uint64(1) << (numbers % _WORD).astype(np.uint64)) - np.uint64(1)
        ranks: Ints = self._ranks[word].astype(np.int64) + np.bitwise_count(self._words[word] & below)
        return ranks


class Subset:
    """Passages ``[n]`` of an index, selected by number.

    Passages with equal tokens share a row. A row belongs to the subset if any of its passages does; its
    other passages are still no members.
    """

    def __init__(self, rows: SortedRows, passages: Ints):
        members = np.unique(np.asarray(passages, dtype=np.int64))
        self._index = rows
        self._members = NumberSet(members, len(rows.row_of)) if rows.shared else None
        self.rows = NumberSet(np.unique(rows.row_of[members].astype(np.int64)), len(rows))
        self.size = len(members)

    def holds(self, passages: Ints) -> npt.NDArray[np.bool_]:
        if self._members is not None:
            return self._members.holds(passages)
        return self.rows.holds(np.asarray(self._index.row_of)[passages].astype(np.int64))

    def each_in(self, low: int, high: int) -> Iterator[int]:
        """The passages of the subset in the rows ``low:high``, by number, in row order."""
        for row in self.rows.between(low, high).tolist():
            for passage in map(int, self._index.members_in(row, row + 1)):
                if self._members is None or passage in self._members:
                    yield passage
