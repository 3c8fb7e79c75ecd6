"""Some of the passages of an index, counted by ranges of rows.

Legend: N passages, R rows, n members of a set. A state of an index stands for a range of rows, so what a
filter leaves of it is the number of its rows in that range: one subtraction of two ranks, and the index is
never rebuilt. A rank is a look-up in a sorted list where the set is small, and in a bit vector with a running
count a word where it is large: whichever takes less memory (8 bytes a member, or a bit and a half a row).
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
    """A set of numbers below ``limit`` that knows how many of them lie in a range.

    Args:
        numbers: ``[n]`` ascending, none twice.
        limit: What all of them are below.
    """

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
        """The members from ``low`` to below ``high``, ascending."""
        if self.sparse:
            first, last = np.searchsorted(self.list, [low, high])
            return self.list[first:last]
        first = low // _WORD
        words = self.words[first : -(-high // _WORD)]
        marked = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
        return low + np.flatnonzero(marked[low - first * _WORD : high - first * _WORD])

    def holds(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Which of some numbers below the limit are members."""
        if self.sparse:
            return np.isin(numbers, self.list)
        bits = self.words[numbers // _WORD] >> (numbers % _WORD).astype(np.uint64)
        return (bits & np.uint64(1)).astype(bool)

    def __contains__(self, number: int) -> bool:
        return len(self.between(number, number + 1)) == 1


class Several:
    """Sets over one range of numbers, asked side by side: each question names its set.

    Args:
        sets: G sets of one ``limit``.
    """

    def __init__(self, sets: Sequence[NumberSet]):
        self._stride = 1 + max((some.limit for some in sets), default=0)
        self._sparse = np.array([some.sparse for some in sets], dtype=bool)
        lists = [g * self._stride + some.list for g, some in enumerate(sets) if some.sparse]
        self._keys = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
        large = [some for some in sets if not some.sparse]
        self._first_word = np.cumsum(~self._sparse) - 1
        if large:
            self._first_word *= len(large[0].words)
            self._words = np.concatenate([some.words for some in large])
            self._ranks = np.concatenate([some.ranks for some in large])

    def count(self, sets: Ints, low: Ints, high: Ints) -> Ints:
        """How many members of set ``sets[i]`` lie from ``low[i]`` to below ``high[i]``."""
        if self._sparse.all():
            return self._in_lists(sets, high) - self._in_lists(sets, low)
        if not self._sparse.any():
            return self._in_words(sets, high) - self._in_words(sets, low)
        counts = np.empty(len(sets), dtype=np.int64)
        for kind, before in ((True, self._in_lists), (False, self._in_words)):
            some = np.flatnonzero(self._sparse[sets] == kind)
            counts[some] = before(sets[some], high[some]) - before(sets[some], low[some])
        return counts

    def _in_lists(self, sets: Ints, numbers: Ints) -> Ints:
        """Members below each number, and those of all sets before (which a difference takes out)."""
        return np.searchsorted(self._keys, sets * self._stride + numbers)

    def _in_words(self, sets: Ints, numbers: Ints) -> Ints:
        """Members below each number."""
        word = self._first_word[sets] + numbers // _WORD
        below = (np.uint64(1) << (numbers % _WORD).astype(np.uint64)) - np.uint64(1)
        ranks: Ints = self._ranks[word].astype(np.int64) + np.bitwise_count(self._words[word] & below)
        return ranks


class Subset:
    """Some passages of an index.

    Passages with equal tokens share a row: a row belongs to the subset where any of its passages does, and
    only those that do are members.

    Args:
        rows: The rows of the index.
        passages: ``[n]`` numbers of passages, in any order.

    Raises:
        ValueError: A number is that of no passage.
    """

    def __init__(self, rows: SortedRows, passages: Ints):
        members = np.unique(np.asarray(passages, dtype=np.int64))
        if len(members) and not 0 <= members[0] <= members[-1] < len(rows.row_of):
            raise ValueError(f"the index has {len(rows.row_of):,} passages; a number is that of none")
        self._index = rows
        self._members = NumberSet(members, len(rows.row_of)) if rows.shared else None
        self.rows = NumberSet(np.unique(rows.row_of[members].astype(np.int64)), len(rows))
        self.size = len(members)

    def belongs(self, rows: SortedRows) -> bool:
        """Whether it was made for these rows."""
        return self._index is rows

    def holds(self, passages: Ints) -> npt.NDArray[np.bool_]:
        """Which of some passages, by number, belong to it."""
        if self._members is not None:
            return self._members.holds(passages)
        return self.rows.holds(np.asarray(self._index.row_of)[passages].astype(np.int64))

    def each_in(self, low: int, high: int) -> Iterator[int]:
        """Numbers of the passages of the subset in the rows ``low:high``, in row order, one after another."""
        for row in self.rows.between(low, high).tolist():
            for passage in map(int, self._index.members_in(row, row + 1)):
                if self._members is None or passage in self._members:
                    yield passage
