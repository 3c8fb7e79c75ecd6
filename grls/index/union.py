"""Two segments as one index: passages that were added later are in a second, small segment.

Legend: N0 passages of the base (including DONE, the last) and R0 rows; M added passages and A rows; S
states.

Rows are numbered in the merged order. Where the added rows lie among the base rows is computed once: they
walk through the base together, one token at a time. The lowest two bits of a state say which segments
hold its prefix. A state of both is that of the added segment; a sorted list, filled by the walk, gives
the state of the base. Passages are numbered as in a corpus to which the added ones were appended: base,
added, DONE.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.rows import Array, Ints, Rows, SortedRows, gather, narrow, shared_prefixes, stored_lengths

_BASE, _ADDED, _BOTH = 0, 1, 2
_TOKEN_BITS = 32


class UnionRows(SortedRows):
    """The rows of two segments in the merged order.

    ``before [A]``: base rows before each added row. ``new [A]``: whether no base row equals the added
    row.
    """

    def __init__(self, base: SortedRows, added: SortedRows, before: Ints, new: Array):
        self.end = base.end
        self.longest = max(base.longest, added.longest)
        self.base, self.added = base, added
        self.new = new
        self.new_before: Ints = np.concatenate(([0], np.cumsum(new)))
        self.rows_of_added: Ints = before + self.new_before[:-1]
        """``[A]`` merged row of each added row."""
        self.before_new: Ints = before[new]
        """Base rows before each new row."""

    def __len__(self) -> int:
        return len(self.base) + len(self.before_new)

    def split(self, rows: Ints) -> tuple[Ints, Ints]:
        """The numbers of base rows and of added rows before each merged row (which may be R)."""
        added: Ints = np.searchsorted(self.rows_of_added, rows)
        return rows - self.new_before[added], added

    def merged(self, base_rows: Ints) -> Ints:
        return base_rows + np.searchsorted(self.before_new, base_rows, side="right")

    def _is_new(self, rows: Ints) -> tuple[Array, Ints, Ints]:
        """Whether each merged row is a new added row; its base row (if not) and its added row (if so)."""
        base, added = self.split(rows)
        inside = np.minimum(added, len(self.new) - 1)
        return (self.rows_of_added[inside] == rows) & self.new[inside], base, inside

    def row(self, r: int) -> Ints:
        new, base, added = self._is_new(np.array([r]))
        return self.added.row(int(added[0])) if new[0] else self.base.row(int(base[0]))

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:
        new, base, added = self._is_new(rows)
        tokens = np.empty(len(rows), dtype=np.int64)
        tokens[new] = self.added.tokens_at(added[new], positions[new])
        tokens[~new] = self.base.tokens_at(base[~new], positions[~new])
        return tokens

    def lengths(self) -> Ints:
        lengths = np.empty(len(self), dtype=np.int64)
        lengths[self.merged(np.arange(len(self.base)))] = self.base.lengths()
        lengths[self.rows_of_added[self.new]] = self.added.lengths()[self.new]
        return lengths

    def members_before(self, rows: Array) -> Ints:
        base, added = self.split(np.asarray(rows, dtype=np.int64))
        return self.base.members_before(base) + self.added.members_before(added)

    def members_in(self, low: int, high: int) -> Ints:
        base, added = self.split(np.array([low, high]))
        first = self.base.members_in(int(base[0]), int(base[1]))
        second = self.added.members_in(int(added[0]), int(added[1])) + self._first_added
        first[first == self._first_added] += len(self.added.row_of)  # DONE stays last
        if not len(second):
            return first
        members = np.concatenate((first, second))
        return members[np.lexsort((members, self.row_of[members]))] if len(first) else members

    @property
    def _first_added(self) -> int:
        """The number of the first added passage, which is the number of DONE in the base."""
        return len(self.base.row_of) - 1

    @cached_property
    def row_of(self) -> Array:
        base = self.merged(self.base.row_of.astype(np.int64))
        return np.concatenate((base[:-1], self.rows_of_added[self.added.row_of], base[-1:]))


class UnionIndex(ConstraintIndex):
    """The tokens that may follow a prefix in either of two segments.

    The last passage of ``base`` is DONE; ``added`` has at least one passage, and no DONE.
    """

    rows: UnionRows

    def __init__(self, base: Segment, added: Segment):
        for segment in (base, added):
            segment.rows.refuse_prefixes("an index of two segments", decoding=False)
        self.base, self.added = base, added
        shared, before, new = _walk(base, added)
        self._shared = shared
        self.has_tensors = base.has_tensors and added.has_tensors
        super().__init__(UnionRows(base.rows, added.rows, before, new))

    def start(self) -> int:
        return self.added.start() << 2 | _BOTH

    def allowed(self, states: Ints) -> Allowed:
        kind, inner = states & 3, states >> 2
        if not kind.any():  # far from the start, nearly every prefix is only in the base
            allowed = self.base.allowed(inner)
            return allowed._replace(states=allowed.states << 2)
        in_base, in_added = np.flatnonzero(kind != _ADDED), np.flatnonzero(kind != _BASE)
        base = self.base.allowed(self._base_states(kind[in_base], inner[in_base]))
        added = self.added.allowed(inner[in_added])
        owner = np.concatenate(
            (np.repeat(in_base, np.diff(base.offsets)), np.repeat(in_added, np.diff(added.offsets)))
        )
        tokens = np.concatenate((base.tokens, added.tokens))
        children = np.concatenate((base.states << 2 | _BASE, added.states << 2 | _ADDED))
        order = np.argsort(owner << _TOKEN_BITS | tokens, kind="stable")  # the base's token comes first
        owner, tokens, children = owner[order], tokens[order], children[order]
        repeated = np.flatnonzero((owner[1:] == owner[:-1]) & (tokens[1:] == tokens[:-1]))
        children[repeated + 1] += _BOTH - _ADDED
        first_of_token = np.ones(len(tokens), dtype=bool)
        first_of_token[repeated] = False
        offsets = np.concatenate(([0], np.cumsum(np.bincount(owner[first_of_token], minlength=len(states)))))
        return Allowed(tokens[first_of_token], children[first_of_token], offsets)

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        kind, inner = states & 3, states >> 2
        low, high = np.empty(len(states), dtype=np.int64), np.empty(len(states), dtype=np.int64)
        chosen = np.flatnonzero(kind == _BASE)
        base_low, base_high = self.base.span(inner[chosen])
        low[chosen] = self.rows.merged(base_low)
        high[chosen] = low[chosen] + base_high - base_low
        chosen = np.flatnonzero(kind == _ADDED)  # no row under such a state equals a base row
        added_low, added_high = self.added.span(inner[chosen])
        low[chosen] = self.rows.rows_of_added[added_low]
        high[chosen] = low[chosen] + added_high - added_low
        chosen = np.flatnonzero(kind == _BOTH)
        added_low, added_high = self.added.span(inner[chosen])
        base_low, base_high = self.base.span(self._base_states(kind[chosen], inner[chosen]))
        low[chosen] = base_low + self.rows.new_before[added_low]
        high[chosen] = base_high + self.rows.new_before[added_high]
        return low, high

    def _base_states(self, kind: Array, inner: Ints) -> Ints:
        """The states in the base of prefixes that the base holds."""
        both = kind == _BOTH
        states = inner.copy()
        states[both] = self._shared[1][np.searchsorted(self._shared[0], inner[both])]
        return states


def _walk(base: Segment, added: Segment) -> tuple[tuple[Ints, Ints], Ints, Array]:
    """Walk all added rows through the base together, one token at a time.

    Returns the prefixes that both segments hold, as states of the added segment (ascending) and of the
    base; how many base rows come before each added row, ``[A]``; and which added rows equal no base row,
    ``[A]``.
    """
    before = np.zeros(len(added.rows), dtype=np.int64)
    new = np.ones(len(added.rows), dtype=bool)
    added_states, base_states = np.array([added.start()]), np.array([base.start()])
    levels = [(added_states, base_states)]
    while len(added_states):
        in_added, in_base = added.allowed(added_states), base.allowed(base_states)
        low, _ = base.span(in_base.states)
        _, end = base.span(base_states)
        # The first row of the base's next token that is not below the added one, or the end of the range.
        owner = np.repeat(np.arange(len(added_states)), np.diff(in_added.offsets))
        base_owner = np.repeat(np.arange(len(added_states)), np.diff(in_base.offsets))
        keys = base_owner << _TOKEN_BITS | in_base.tokens
        added_keys = owner << _TOKEN_BITS | in_added.tokens
        nearest = np.searchsorted(keys, added_keys)
        last = nearest >= in_base.offsets[owner + 1]
        inside = np.minimum(nearest, max(len(keys) - 1, 0))
        at = np.where(last, end[owner], low[inside]) if len(keys) else end[owner]
        same = ~last & (keys[inside] == added_keys) if len(keys) else np.zeros(len(owner), dtype=bool)
        first, stop = added.span(in_added.states)
        settled = ~same | (in_added.tokens == added.rows.end)
        sizes = (stop - first)[settled]
        rows = np.repeat(first[settled] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        before[rows] = np.repeat(at[settled], sizes)
        new[first[same & settled]] = False
        added_states, base_states = in_added.states[same], in_base.states[inside[same]]
        levels.append((added_states, base_states))
    shared = [np.concatenate(part) for part in zip(*levels, strict=True)]
    order = np.argsort(shared[0])
    return (shared[0][order], shared[1][order]), before, new


def merge(index: ConstraintIndex, keep: Array) -> Segment:
    """One segment with the passages that ``keep [N]`` marks, equal to one that is built from scratch.

    Nothing is sorted again: the merge copies rows and compares neighbours, in memory. In the form
    ``prefixes``, tokens may take fewer bytes than from scratch, since the unstored rest may hold larger token
    ids.
    """
    backend: type[Segment]
    starts: Ints  # [R] the start of each row in the concatenated tokens of the segments
    if isinstance(index, UnionIndex):
        segments, backend = [index.base, index.added], type(index.base)
        base, added = index.base.rows, index.added.rows
        starts = np.empty(len(index.rows), dtype=np.int64)
        added_rows, new = index.rows.rows_of_added, index.rows.new
        old = np.ones(len(index.rows), dtype=bool)
        old[added_rows[new]] = False
        starts[old] = base.offsets.all()[:-1]
        starts[added_rows[new]] = len(base.tokens) + added.offsets.all()[:-1][new]
    elif isinstance(index, Segment):
        segments, backend = [index], type(index)
        starts = index.rows.offsets.all()[:-1]
    else:
        raise TypeError(f"cannot merge a {type(index).__name__}")
    members = index.rows.members_in(0, len(index.rows))  # the kept passages, renumbered and grouped by row
    stay = keep[members]
    sizes = np.bincount(index.rows.row_of[members].astype(np.int64)[stay], minlength=len(index.rows))
    members = (np.cumsum(keep) - 1)[members[stay]]
    left = np.flatnonzero(sizes)
    lengths = index.rows.lengths()[left]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    wide = np.result_type(*[segment.rows.tokens.dtype for segment in segments])
    tokens = np.concatenate([segment.rows.tokens.astype(wide, copy=False) for segment in segments])
    tokens = gather(tokens, starts[left], offsets)
    shared = shared_prefixes(tokens, offsets)
    if index.rows.form == "prefixes":  # without a removed neighbour, fewer tokens identify a row
        lengths = stored_lengths(lengths, shared, 0, "prefixes")
        starts, offsets = offsets[:-1], np.concatenate(([0], np.cumsum(lengths)))
        tokens = gather(tokens, starts, offsets)
    firsts = np.cumsum(sizes[left]) - sizes[left]
    rows = Rows.pack(narrow(tokens), offsets, members, firsts, index.rows.end, index.rows.form)
    return backend.build(rows, shared)
