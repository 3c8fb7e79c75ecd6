"""Two segments as one index: passages that were added later stand in a second, small one.

Legend: N0 passages of the base (DONE among them, last) and R0 rows; M added passages and A rows; S states.

Rows are numbered in the merged order, so a state of the union covers one range of rows as in any index. Where
the added rows stand among the base rows is found once, by walking them through the base, all of them a token
at a time. A state is one of three kinds, in its lowest two bits: a prefix of the base alone, of the added
segment alone, or of both. One of both is named by the added segment's state; the base's is looked up in a
sorted list, which that same walk has filled.

Passages keep the order of a corpus to which the added ones were appended: base, added, DONE.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.rows import Array, Ints, SortedRows

_BASE, _ADDED, _BOTH = 0, 1, 2
_TOKEN_BITS = 32


class UnionRows(SortedRows):
    """The rows of two segments in the merged order.

    Args:
        base: R0 rows.
        added: A rows.
        before: ``[A]`` base rows before each added row.
        new: ``[A]`` bool: no base row is equal.
    """

    def __init__(self, base: SortedRows, added: SortedRows, before: Ints, new: Array):
        self.end = base.end
        self.longest = max(base.longest, added.longest)
        self.base, self.added = base, added
        self.new = new
        self.new_before: Ints = np.concatenate(([0], np.cumsum(new)))
        self.places: Ints = before + self.new_before[:-1]
        """``[A]`` merged row of each added row."""
        self.new_at: Ints = before[new]
        """Base rows before each new row."""

    def __len__(self) -> int:
        return len(self.base) + len(self.new_at)

    def split(self, rows: Ints) -> tuple[Ints, Ints]:
        """How many base rows, and how many added rows, stand before each merged row (which may be R)."""
        added: Ints = np.searchsorted(self.places, rows)
        return rows - self.new_before[added], added

    def merged(self, base_rows: Ints) -> Ints:
        """The merged number of base rows."""
        return base_rows + np.searchsorted(self.new_at, base_rows, side="right")

    def _is_new(self, rows: Ints) -> tuple[Array, Ints, Ints]:
        """Whether each merged row is a new one, its base row where it is not, its added row where it is."""
        base, added = self.split(rows)
        inside = np.minimum(added, len(self.new) - 1)
        return (self.places[inside] == rows) & self.new[inside], base, inside

    def row(self, r: int) -> Ints:  # noqa: D102
        new, base, added = self._is_new(np.array([r]))
        return self.added.row(int(added[0])) if new[0] else self.base.row(int(base[0]))

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:  # noqa: D102
        new, base, added = self._is_new(rows)
        tokens = np.empty(len(rows), dtype=np.int64)
        tokens[new] = self.added.tokens_at(added[new], positions[new])
        tokens[~new] = self.base.tokens_at(base[~new], positions[~new])
        return tokens

    def lengths(self) -> Ints:  # noqa: D102
        lengths = np.empty(len(self), dtype=np.int64)
        lengths[self.merged(np.arange(len(self.base)))] = self.base.lengths()
        lengths[self.places[self.new]] = self.added.lengths()[self.new]
        return lengths

    def members_before(self, rows: Array) -> Ints:  # noqa: D102
        base, added = self.split(np.asarray(rows, dtype=np.int64))
        return self.base.members_before(base) + self.added.members_before(added)

    def members_in(self, low: int, high: int) -> Ints:  # noqa: D102
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
        """The number of the first added passage; DONE's number in the base."""
        return len(self.base.row_of) - 1

    @cached_property
    def row_of(self) -> Array:
        """``[N]`` row of each passage, made at first use."""
        base = self.merged(self.base.row_of.astype(np.int64))
        return np.concatenate((base[:-1], self.places[self.added.row_of], base[-1:]))


class UnionIndex(ConstraintIndex):
    """What may follow a prefix in either of two segments.

    Args:
        base: A segment whose last passage is DONE.
        added: A segment of at least one passage, without DONE.

    Raises:
        ConfigError: One of them holds only unique prefixes, which do not tell its rows from the other's.
    """

    rows: UnionRows

    def __init__(self, base: Segment, added: Segment):
        for segment in (base, added):
            segment.rows.refuse_prefixes("an index of two segments", decoding=False)
        self.base, self.added = base, added
        shared, before, new = _walk(base, added)
        self._shared = shared
        super().__init__(UnionRows(base.rows, added.rows, before, new))

    def start(self) -> int:  # noqa: D102
        return self.added.start() << 2 | _BOTH

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        kind, own = states & 3, states >> 2
        if not kind.any():  # far from the start nearly every prefix is the base's alone
            found = self.base.allowed(own)
            return found._replace(states=found.states << 2)
        in_base, in_added = np.flatnonzero(kind != _ADDED), np.flatnonzero(kind != _BASE)
        base = self.base.allowed(self._base_states(kind[in_base], own[in_base]))
        added = self.added.allowed(own[in_added])
        owner = np.concatenate(
            (np.repeat(in_base, np.diff(base.offsets)), np.repeat(in_added, np.diff(added.offsets)))
        )
        tokens = np.concatenate((base.tokens, added.tokens))
        children = np.concatenate((base.states << 2 | _BASE, added.states << 2 | _ADDED))
        order = np.argsort(owner << _TOKEN_BITS | tokens, kind="stable")  # the base's before the added one
        owner, tokens, children = owner[order], tokens[order], children[order]
        twice = np.flatnonzero((owner[1:] == owner[:-1]) & (tokens[1:] == tokens[:-1]))
        children[twice + 1] += _BOTH - _ADDED
        once = np.ones(len(tokens), dtype=bool)
        once[twice] = False
        offsets = np.concatenate(([0], np.cumsum(np.bincount(owner[once], minlength=len(states)))))
        return Allowed(tokens[once], children[once], offsets)

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        kind, own = states & 3, states >> 2
        low, high = np.empty(len(states), dtype=np.int64), np.empty(len(states), dtype=np.int64)
        some = np.flatnonzero(kind == _BASE)
        base_low, base_high = self.base.span(own[some])
        low[some] = self.rows.merged(base_low)
        high[some] = low[some] + base_high - base_low
        some = np.flatnonzero(kind == _ADDED)  # no row under it is equal to a base row
        added_low, added_high = self.added.span(own[some])
        low[some] = self.rows.places[added_low]
        high[some] = low[some] + added_high - added_low
        some = np.flatnonzero(kind == _BOTH)
        added_low, added_high = self.added.span(own[some])
        base_low, base_high = self.base.span(self._base_states(kind[some], own[some]))
        low[some] = base_low + self.rows.new_before[added_low]
        high[some] = base_high + self.rows.new_before[added_high]
        return low, high

    def _base_states(self, kind: Array, own: Ints) -> Ints:
        """The base's states of prefixes that it holds."""
        both = kind == _BOTH
        states = own.copy()
        states[both] = self._shared[1][np.searchsorted(self._shared[0], own[both])]
        return states


def _walk(base: Segment, added: Segment) -> tuple[tuple[Ints, Ints], Ints, Array]:
    """Walk the added rows through the base, all at once, a token at a time.

    Returns:
        The prefixes that both hold, as the added segment's states (ascending) and the base's; how many base
        rows stand before each added row, ``[A]``; and which added rows equal no base row, ``[A]``.
    """
    before = np.zeros(len(added.rows), dtype=np.int64)
    new = np.ones(len(added.rows), dtype=bool)
    ours, theirs = np.array([added.start()]), np.array([base.start()])
    levels = [(ours, theirs)]
    while len(ours):
        mine, its = added.allowed(ours), base.allowed(theirs)
        low, _ = base.span(its.states)
        _, end = base.span(theirs)
        # Where the base has a continuation not below ours: its first row; where it has none: the end.
        owner = np.repeat(np.arange(len(ours)), np.diff(mine.offsets))
        its_owner = np.repeat(np.arange(len(ours)), np.diff(its.offsets))
        keys = its_owner << _TOKEN_BITS | its.tokens
        wanted = owner << _TOKEN_BITS | mine.tokens
        place = np.searchsorted(keys, wanted)
        last = place >= its.offsets[owner + 1]
        inside = np.minimum(place, max(len(keys) - 1, 0))
        at = np.where(last, end[owner], low[inside]) if len(keys) else end[owner]
        same = ~last & (keys[inside] == wanted) if len(keys) else np.zeros(len(owner), dtype=bool)
        first, stop = added.span(mine.states)
        settled = ~same | (mine.tokens == added.rows.end)
        sizes = (stop - first)[settled]
        rows = np.repeat(first[settled] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        before[rows] = np.repeat(at[settled], sizes)
        new[first[same & settled]] = False
        ours, theirs = mine.states[same], its.states[inside[same]]
        levels.append((ours, theirs))
    shared = [np.concatenate(part) for part in zip(*levels, strict=True)]
    order = np.argsort(shared[0])
    return (shared[0][order], shared[1][order]), before, new
