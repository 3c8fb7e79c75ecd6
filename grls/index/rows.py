"""The token sequences of a corpus, distinct and in lexicographic order.

Legend: N passages, R distinct rows (R <= N; passages with equal tokens share a row), T tokens of all rows
together. Every sequence ends in the end token, which occurs nowhere else, so none is a prefix of another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from grls.errors import ConfigError, Option
from grls.index.options import Form

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_SHIFT = 5
_BLOCK = 1 << _SHIFT
_GATHER_ROWS = 1 << 12
MAX_LENGTH = (1 << 16) - 1
"""The longest row, in tokens: a state keeps the depth in 16 bits."""


COPIES = 4
"""The number of copies of the tokens of a piece in memory while it is sorted."""
ROW_BYTES = 200
"""Memory for sorting, in bytes a passage, beside the tokens."""


class Sequences(NamedTuple):
    """Consecutive passages: ``tokens [t]`` concatenated, and ``offsets [n + 1]``, the last of which is t."""

    tokens: Array
    offsets: Array


def concatenated(pieces: Sequence[Sequences]) -> Sequences:
    shifts = np.cumsum([0, *(len(piece.tokens) for piece in pieces)])
    offsets = [piece.offsets[1:] + shift for piece, shift in zip(pieces, shifts, strict=False)]
    return Sequences(np.concatenate([p.tokens for p in pieces]), np.concatenate([[0], *offsets]))


def cost(tokens: int, rows: int, width: int) -> int:
    """Memory for sorting so many tokens of ``width`` bytes in so many rows, in bytes."""
    return COPIES * width * tokens + ROW_BYTES * rows


class SortedRows(ABC):
    """The protocol of the R sorted rows of N passages, for any way of storing them."""

    end: int
    """The end token."""
    longest: int
    """The number of stored tokens of the longest row."""
    form: Form = "whole"
    """What is stored of each row."""

    @property
    @abstractmethod
    def row_of(self) -> Array:
        """``[N]`` row of each passage."""

    @abstractmethod
    def __len__(self) -> int:
        """R."""

    @abstractmethod
    def row(self, r: int) -> Ints:
        """The stored tokens of row r (form ``whole``: all tokens with the end token), ``[length]``."""

    @abstractmethod
    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:
        """Token ``positions[i]`` of row ``rows[i]``, for each i."""

    @abstractmethod
    def lengths(self) -> Ints:
        """``[R]`` the number of stored tokens of each row."""

    @abstractmethod
    def members_before(self, rows: Array) -> Ints:
        """The number of passages in the rows before each of ``rows`` (which may be R)."""

    @abstractmethod
    def members_in(self, low: int, high: int) -> Ints:
        """Numbers of the passages in the rows ``low:high``, in row order."""

    def members_of(self, rows: Ints) -> Ints:
        """Numbers of the passages in these rows (ascending), in row order."""
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        first = self.members_before(rows)
        counts = self.members_before(rows + 1) - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        if isinstance(self, Rows):  # no copy of what stands between
            stored: Ints = self.members[np.repeat(first, counts) + within].astype(np.int64)
            return stored
        every = self.members_in(int(rows[0]), int(rows[-1]) + 1)
        members: Ints = every[np.repeat(first - first[0], counts) + within]
        return members

    @property
    def shared(self) -> bool:
        return len(self) < len(self.row_of)

    def refuse_prefixes(self, work: str) -> None:
        """Refuse ``work`` that needs whole rows if only unique prefixes are stored."""
        if self.form == "prefixes":
            raise ConfigError(
                f"{work} needs whole passages, and this index holds only their unique prefixes: build it "
                f"with `grls index MODEL {Option('corpus', 'CORPUS')} {Option('output', 'NEW')} "
                f"{Option('index.form', 'whole')}`, or decode renormalized scores with early stop."
            )


class Offsets:
    """``[R + 1]`` the start of each row, in little more than two bytes a row.

    Row r begins at ``blocks[r // 32] + within[r]``. If a distance within a block could exceed 16 bits,
    ``within`` is empty and ``blocks [R + 1]`` holds the offsets.

    Args:
        blocks: ``[R // 32 + 1]`` unsigned, the start of each block.
        within: ``[R + 1]`` 16-bit distances from the start of the block, or empty.
    """

    shift = _SHIFT
    """The block of row r is ``r >> shift``, unless ``within`` is empty."""

    def __init__(self, blocks: Array, within: Array):
        self.blocks = blocks
        self.within = within

    @classmethod
    def pack(cls, offsets: Ints) -> Self:
        kind = unsigned(int(offsets[-1]), np.uint32)
        if not packable(int(np.diff(offsets).max(initial=0))):
            return cls(offsets.astype(kind), np.empty(0, dtype=np.uint16))
        blocks, within = pack_offsets(offsets)
        return cls(blocks.astype(kind), within)

    def __len__(self) -> int:
        return len(self.within) or len(self.blocks)

    def __getitem__(self, rows: Any) -> Any:
        """The offsets of rows (numbers, or one number) as 64-bit integers."""
        if len(self.within):
            return self.blocks[rows >> _SHIFT].astype(np.int64) + self.within[rows].astype(np.int64)
        return self.blocks[rows].astype(np.int64)

    def all(self) -> Ints:
        return np.asarray(self[np.arange(len(self))], dtype=np.int64)


def packable(longest: int) -> bool:
    return longest * (_BLOCK - 1) <= np.iinfo(np.uint16).max


def pack_offsets(offsets: Ints) -> tuple[Ints, Array]:
    """Blocks and distances of consecutive offsets; the first offset begins a block."""
    blocks = offsets[::_BLOCK]
    within = offsets - np.repeat(blocks, _BLOCK)[: len(offsets)]
    return blocks, within.astype(np.uint16)


@dataclass(frozen=True)
class Rows(SortedRows):
    """Distinct sequences in lexicographic order and the passages of each, in arrays.

    Attributes:
        tokens: ``[T]`` unsigned; the concatenated stored tokens of the rows.
        offsets: ``[R + 1]``; row r is ``tokens[offsets[r]:offsets[r + 1]]``.
        members: ``[N]`` unsigned; passage numbers, grouped by row, ascending within a row.
        member_offsets: ``[R + 1]`` if rows are shared, else empty (row r holds ``members[r]``).
        end: The end token.
        longest: The number of stored tokens of the longest row.
        form: ``whole``, or ``prefixes``: of each row only the shortest prefix that no other row has.
    """

    tokens: Array
    offsets: Offsets
    members: Array
    member_offsets: Array
    end: int
    longest: int
    form: Form = "whole"

    @classmethod
    def pack(cls, tokens: Array, offsets: Ints, members: Ints, firsts: Ints, end: int, form: Form) -> Self:
        """Rows from plain arrays; ``firsts[r]`` is where the members of row r begin, ``[R]``."""
        kind, shared = unsigned(len(members)), len(firsts) < len(members)
        return cls(
            tokens=tokens,
            offsets=Offsets.pack(offsets),
            members=members.astype(kind),
            member_offsets=(np.append(firsts, len(members)) if shared else np.empty(0)).astype(kind),
            end=end,
            longest=int(np.diff(offsets).max(initial=0)),
            form=form,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, r: int) -> Ints:
        return self.tokens[int(self.offsets[r]) : int(self.offsets[r + 1])].astype(np.int64)

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:
        tokens: Ints = self.tokens[self.offsets[rows] + positions].astype(np.int64)
        return tokens

    def lengths(self) -> Ints:
        return np.diff(self.offsets.all())

    def members_before(self, rows: Array) -> Ints:
        if len(self.member_offsets):
            return self.member_offsets[rows].astype(np.int64)
        return np.asarray(rows, dtype=np.int64)

    def members_in(self, low: int, high: int) -> Ints:
        first, last = self.members_before(np.array([low, high]))
        return self.members[first:last].astype(np.int64)

    @property
    def shared(self) -> bool:
        return len(self.member_offsets) > 0

    @cached_property
    def row_of(self) -> Array:
        """``[N]`` row of each passage: the inverse of ``members``, made at first use."""
        inverse = np.empty(len(self.members), dtype=self.members.dtype)
        if len(self.member_offsets):
            offsets: Ints = self.member_offsets.astype(np.int64)
            sizes = offsets[1:] - offsets[:-1]
            inverse[self.members] = np.repeat(np.arange(len(self), dtype=inverse.dtype), sizes)
        else:
            inverse[self.members] = np.arange(len(self), dtype=inverse.dtype)
        return inverse


def sort_rows(tokens: Array, offsets: Array, end: int, form: Form = "whole") -> tuple[Rows, Ints]:
    """Sort the sequences of a corpus and drop repeated ones.

    Each round compares eight bytes (four 16-bit or two 32-bit tokens) of rows that are still equal. So
    the cost depends on the shared prefixes and not on the lengths.

    Args:
        tokens: ``[T]`` the concatenated sequences of passages 0, 1, …
        offsets: ``[N + 1]`` the start of each sequence; the last is T.
        end: The end token, last in every sequence and nowhere else.
        form: What to store of each row.

    Returns:
        The rows, and ``[R]`` the length of the prefix that each row shares with the row before it (first:
            0).
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    validate(tokens, offsets, end)
    small = narrow(tokens)
    order, shared = sort(small, offsets)
    starts = np.flatnonzero(shared >= 0)
    first = order[starts]
    shared = shared[starts]
    lengths = stored_lengths(np.diff(offsets)[first], shared, 0, form)
    sorted_offsets = np.concatenate(([0], np.cumsum(lengths)))
    sorted_tokens = gather(small, offsets[first], sorted_offsets)
    return Rows.pack(sorted_tokens, sorted_offsets, order, starts, int(end), form), shared


def stored_lengths(lengths: Ints, shared: Ints, following: int, form: Form) -> Ints:
    """``[R]`` the number of tokens that a form stores of consecutive rows of ``lengths [R]`` tokens.

    ``prefixes``: one token more than a row shares with either neighbour: ``shared [R]`` with the row
    before it, ``following`` of the last row with the row after it.
    """
    if form == "whole" or not len(lengths):
        return lengths
    prefixes: Ints = np.maximum(shared, np.append(shared[1:], following)) + 1
    return prefixes


def validate(tokens: Array, offsets: Ints, end: int) -> None:
    lengths = np.diff(offsets)
    if len(lengths) == 0:
        return
    if lengths.min() < 1 or (tokens[offsets[1:] - 1] != end).any():
        raise ValueError(f"every sequence must end in the end token {end}")
    if int((tokens == end).sum()) != len(lengths):
        raise ValueError(f"the end token {end} occurs inside a sequence")
    if lengths.max() > MAX_LENGTH:
        raise ValueError(f"a sequence has {lengths.max()} tokens, at most {MAX_LENGTH} fit")


def unsigned(top: int, smallest: type[np.unsignedinteger[Any]] = np.uint16) -> type[np.unsignedinteger[Any]]:
    kinds: list[type[np.unsignedinteger[Any]]] = [np.uint16, np.uint32, np.uint64]
    for kind in kinds[kinds.index(smallest) :]:
        if top <= np.iinfo(kind).max:
            return kind
    raise AssertionError(top)


def narrow(tokens: Array) -> Array:
    return tokens.astype(unsigned(int(tokens.max(initial=0))), copy=False)


def sort(tokens: Array, offsets: Ints) -> tuple[Ints, Ints]:
    """Stable order of the sequences, and the length of the prefix shared with the one before (-1: equal)."""
    count = len(offsets) - 1
    order = np.arange(count)
    shared = np.zeros(count, dtype=np.int64)
    ranks = np.arange(count)  # in `order`, of rows that are still equal to a neighbour
    group = np.zeros(count, dtype=np.int64)
    width = 4 if tokens.dtype == np.uint16 else 2
    depth = 0
    while len(ranks) > 1:
        keys = keys_at(tokens, offsets, order[ranks], depth, width)
        sorting = np.lexsort((keys, group)) if depth else np.argsort(keys, kind="stable")
        order[ranks], keys = order[ranks[sorting]], keys[sorting]
        together = group[1:] == group[:-1]
        differ = np.flatnonzero(together & (keys[1:] != keys[:-1]))
        shared[ranks[differ + 1]] = depth + _equal_tokens(keys[differ] ^ keys[differ + 1], width)
        tied = together & (keys[1:] == keys[:-1])
        depth += width
        ended = offsets[order[ranks] + 1] - offsets[order[ranks]] <= depth
        shared[ranks[1:][tied & ended[1:]]] = -1
        tied &= ~ended[1:]
        live = np.concatenate((tied, [False])) | np.concatenate(([False], tied))
        group = np.concatenate(([0], np.cumsum(~tied)))[live]
        ranks = ranks[live]
    return order, shared


def keys_at(tokens: Array, offsets: Ints, rows: Ints, depth: int, width: int) -> npt.NDArray[np.uint64]:
    """``width`` tokens of each row from ``depth`` on as one big-endian integer, zero past the end."""
    key = np.zeros(len(rows), dtype=np.uint64)
    at, stop = offsets[rows] + depth, offsets[rows + 1]
    for step in range(width):
        position = at + step
        inside = position < stop
        token = tokens[np.where(inside, position, 0)].astype(np.uint64)
        key = (key << np.uint64(64 // width)) | np.where(inside, token, np.uint64(0))
    return key


def _equal_tokens(difference: npt.NDArray[np.uint64], width: int) -> Ints:
    """The number of leading tokens that two keys share, from their exclusive or."""
    bits = 64 // width
    equal = np.zeros(len(difference), dtype=np.int64)
    for step in range(1, width):
        equal += difference < np.uint64(1 << (64 - bits * step))
    return equal


def gather(tokens: Array, starts: Ints, offsets: Ints) -> Array:
    """Copy the rows that begin at ``starts``: row r to ``offsets[r]:offsets[r + 1]`` of the result."""
    result = np.empty(int(offsets[-1]), dtype=tokens.dtype)
    for first in range(0, len(starts), _GATHER_ROWS):
        last = min(first + _GATHER_ROWS, len(starts))
        low, high = offsets[first], offsets[last]
        shift = np.repeat(starts[first:last] - offsets[first:last], np.diff(offsets[first : last + 1]))
        result[low:high] = tokens[np.arange(low, high) + shift]
    return result
