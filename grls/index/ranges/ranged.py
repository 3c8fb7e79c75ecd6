"""One constraint index over several prefix ranges, equal to the whole index.

Legend: P parts, S states, A allowed tokens, R rows, N passages.

Rows are numbered through all parts, so a state covers one range of rows as in any index. The lowest bits of a
state name the part that holds its prefix, and the rest is the state within that part. A prefix at a cut is
held by several parts: there are at most as many such *shared* prefixes for each cut as its rows share tokens,
so their tokens, children and ranges are computed once, at the beginning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from grls.errors import ConfigError
from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.rows import Array, Form, Ints, SortedRows, unsigned

_BITS = 10
_MASK = (1 << _BITS) - 1
_SHARED = _MASK
"""The place of a part in a state that stands for a shared prefix."""
MOST_PARTS = _SHARED
"""The most parts of an index."""


class RangedRows(SortedRows):
    """The rows of all parts, numbered through.

    Args:
        parts: The parts.
    """

    def __init__(self, parts: IndexParts):
        self.parts = parts
        facts = parts.facts
        self.end, self.form = facts[0].end, facts[0].form
        self.longest = max(part.longest for part in facts)
        self.first_rows: Ints = np.cumsum([0, *(part.rows for part in facts)])
        """``[P + 1]`` the first row of each part, and R."""
        self._first_members: Ints = np.cumsum([0, *(part.passages for part in facts)])

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    @cached_property
    def row_of(self) -> Array:
        """``[N]`` row of each passage, made at first use."""
        count = int(self._first_members[-1])
        rows = np.empty(count, dtype=unsigned(count))
        for part, facts in enumerate(self.parts.facts):  # one at a time: little memory
            members = self._ask("members", {part: np.array([0, facts.rows])})[part]
            sizes = self._ask("sizes", {part: np.empty(0, dtype=np.int64)})[part]
            first = int(self.first_rows[part])
            rows[members] = np.repeat(np.arange(first, first + facts.rows), sizes)
        return rows

    def row(self, r: int) -> Ints:  # noqa: D102
        part = self._part(np.array([r]))[0]
        return self._ask("row", {int(part): np.array([r - self.first_rows[part]])})[int(part)]

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:  # noqa: D102
        part = self._part(rows)
        tokens = np.empty(len(rows), dtype=np.int64)
        places = {p: np.flatnonzero(part == p) for p in np.unique(part).tolist()}
        asked = {p: [rows[at] - self.first_rows[p], positions[at]] for p, at in places.items()}
        for p, (values,) in self.parts.ask("tokens_at", asked).items():
            tokens[places[p]] = values
        return tokens

    def lengths(self) -> Ints:  # noqa: D102
        none = np.empty(0, dtype=np.int64)
        replies = self._ask("lengths", dict.fromkeys(range(len(self.parts.facts)), none))
        return np.concatenate([replies[part] for part in sorted(replies)])

    def members_before(self, rows: Array) -> Ints:  # noqa: D102
        rows = np.asarray(rows, dtype=np.int64)
        part = self._part(rows)
        counts = self._first_members[part]
        places = {p: np.flatnonzero(part == p) for p in np.unique(part).tolist()}
        asked = {p: rows[at] - self.first_rows[p] for p, at in places.items()}
        for p, before in self._ask("before", asked).items():
            counts[places[p]] += before
        return counts

    def members_in(self, low: int, high: int) -> Ints:  # noqa: D102
        asked = {}
        for part, (first, last) in enumerate(zip(self.first_rows, self.first_rows[1:], strict=False)):
            if low < last and high > first:
                asked[part] = np.array([max(low, first), min(high, last)]) - first
        replies = self._ask("members", asked)
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *(replies[part] for part in sorted(replies))])

    def _part(self, rows: Ints) -> Ints:
        """The part of each row; R belongs to the last part."""
        part = np.searchsorted(self.first_rows, rows, side="right") - 1
        return np.minimum(part, len(self.parts.facts) - 1)

    def _ask(self, what: str, asked: Mapping[int, Array]) -> dict[int, Array]:
        """Ask a question of one array whose answer is one array."""
        replies = self.parts.ask(what, {part: [array] for part, array in asked.items()})
        return {part: reply[0] for part, reply in replies.items()}


class _Shared(NamedTuple):
    """A prefix that several parts hold.

    Attributes:
        tokens: ``[A]`` the tokens that may follow.
        states: ``[A]`` the states after them.
        lows: ``[A]`` the first row of each.
        highs: ``[A]`` the end row of each.
    """

    tokens: Ints
    states: Ints
    lows: Ints
    highs: Ints


class RangedIndex(ConstraintIndex):
    """The index of all parts.

    Args:
        parts: The parts, in the order of their rows; numbers of passages are those in the whole index.

    Raises:
        ConfigError: There are too many parts.
    """

    rows: RangedRows

    def __init__(self, parts: IndexParts):
        if len(parts.facts) > MOST_PARTS:
            raise ConfigError(f"an index has at most {MOST_PARTS:,} parts, got {len(parts.facts):,}.")
        super().__init__(RangedRows(parts))
        self.complete: Callable[[int], Ints] | None = None
        self._parts = parts
        self._known: tuple[Ints, Ints, Ints] | None = None  # the states of the last answer, and their rows
        self._shared: list[_Shared] = []
        self._walk()

    def start(self) -> int:  # noqa: D102
        return _SHARED

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        owner, inner = states & _MASK, states >> _BITS
        places = {p: np.flatnonzero(owner == p) for p in np.unique(owner).tolist()}
        shared = places.pop(_SHARED, np.empty(0, dtype=np.int64))
        replies = self._parts.ask("allowed", {p: [inner[at]] for p, at in places.items()})
        sizes = np.zeros(len(states), dtype=np.int64)
        for p, at in places.items():
            sizes[at] = np.diff(replies[p][2])
        held = [self._shared[n] for n in inner[shared].tolist()]
        sizes[shared] = [len(one.tokens) for one in held]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        tokens, children, low, high = (np.empty(int(offsets[-1]), dtype=np.int64) for _ in range(4))
        for p, at in places.items():
            size = sizes[at]  # the entries of these states in the ragged arrays
            within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
            slots = np.repeat(offsets[at], size) + within
            first = self.rows.first_rows[p]
            tokens[slots], children[slots] = replies[p][0], replies[p][1] << _BITS | p
            low[slots], high[slots] = replies[p][3] + first, replies[p][4] + first
        for place, one in zip(shared.tolist(), held, strict=True):
            slot = slice(int(offsets[place]), int(offsets[place + 1]))
            tokens[slot], children[slot] = one.tokens, one.states
            low[slot], high[slot] = one.lows, one.highs
        self._known = children, low, high
        return Allowed(tokens, children, offsets)

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        known = self._known
        if known is not None and known[0] is states:  # a search asks for the rows of the last answer
            return known[1], known[2]
        owner, inner = states & _MASK, states >> _BITS
        low, high = np.empty(len(states), dtype=np.int64), np.empty(len(states), dtype=np.int64)
        places = {p: np.flatnonzero(owner == p) for p in np.unique(owner).tolist()}
        for place in places.pop(_SHARED, np.empty(0, dtype=np.int64)).tolist():
            one = self._shared[int(inner[place])]
            low[place], high[place] = one.lows[0], one.highs[-1]
        replies = self._parts.ask("span", {p: [inner[at]] for p, at in places.items()})
        for p, at in places.items():
            low[at], high[at] = (rows + self.rows.first_rows[p] for rows in replies[p])
        return low, high

    def tokens(self, passage: int) -> Ints:
        """The token sequence of a passage, end token included.

        Raises:
            ConfigError: The form is ``prefixes`` and ``complete`` is not set.
        """
        if self.complete is not None:
            return self.complete(passage)
        if self.rows.form == "prefixes":
            self.rows.refuse_prefixes("the token sequence of a passage")
        return super().tokens(passage)

    def _walk(self) -> None:
        """Find all shared prefixes, from the empty one on: the union of what several parts allow after each.

        Rows are sorted, so the tokens of a part are not below those of the parts before it.
        """
        waiting = [{p: facts.start for p, facts in enumerate(self._parts.facts)}]
        while len(self._shared) < len(waiting):
            held = waiting[len(self._shared)]
            replies = self._parts.ask("allowed", {p: [np.array([state])] for p, state in held.items()})
            order = sorted(replies)
            part = np.repeat(order, [len(replies[p][0]) for p in order])
            tokens, children = (np.concatenate([replies[p][n] for p in order]) for n in (0, 1))
            lows, highs = (
                np.concatenate([replies[p][n] + self.rows.first_rows[p] for p in order]) for n in (3, 4)
            )
            starts = np.flatnonzero(np.append(True, tokens[1:] != tokens[:-1]))
            ends = np.append(starts[1:], len(tokens))
            states = children[starts] << _BITS | part[starts]
            for place in np.flatnonzero(ends - starts > 1).tolist():  # tokens of two parts: shared prefixes
                same = slice(int(starts[place]), int(ends[place]))
                states[place] = len(waiting) << _BITS | _SHARED
                waiting.append(dict(zip(part[same].tolist(), children[same].tolist(), strict=True)))
            self._shared.append(_Shared(tokens[starts], states, lows[starts], highs[ends - 1]))


# The parts of an index: what a part answers, and the parts in this process.
#
# Legend: S states, A allowed tokens, R rows of a part.


Arrays = Sequence[Array]


class RangePart(NamedTuple):
    """A part of an index.

    Attributes:
        segment: Its rows as an index, whose passages are numbered from 0.
        numbers: The number in the whole index of each of its passages, ascending.
    """

    segment: Segment
    numbers: Array


class Facts(NamedTuple):
    """The size of a part.

    Attributes:
        rows: Number of rows.
        passages: Number of passages.
        longest: Stored tokens of the longest row.
        end: The end token.
        form: What is stored of each row.
        start: The state of the empty prefix.
    """

    rows: int
    passages: int
    longest: int
    end: int
    form: Form
    start: int


class IndexParts(ABC):
    """The P parts of an index, in the order of their rows; states and rows are those within a part.

    Attributes:
        facts: The size of each part.
    """

    facts: list[Facts]

    @abstractmethod
    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:
        """Ask several parts the same question; parts in other processes answer at the same time.

        Args:
            what: A question of :func:`answer`.
            asked: Part -> the arrays of the question.
        """


class PartsHere(IndexParts):
    """Parts in this process.

    Args:
        parts: The parts.
    """

    def __init__(self, parts: Sequence[RangePart]):
        self._parts = parts
        self.facts = [facts_of(part) for part in parts]

    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:  # noqa: D102
        return {part: answer(self._parts[part], what, arrays) for part, arrays in asked.items()}


def facts_of(part: RangePart) -> Facts:
    """The size of a part."""
    rows = part.segment.rows
    return Facts(len(rows), len(rows.members), rows.longest, rows.end, rows.form, part.segment.start())


def answer(part: RangePart, what: str, asked: Arrays) -> list[Array]:
    """The answer of a part to a question, which holds arrays; rows and states are those of the part.

    Raises:
        ValueError: There is no such question.
    """
    segment, rows = part.segment, part.segment.rows
    match what:
        case "allowed":  # tokens, states and offsets, and the spans of these states
            allowed = segment.allowed(asked[0])
            return [*allowed, *segment.span(allowed.states)]
        case "span":
            return list(segment.span(asked[0]))
        case "tokens_at":
            return [rows.tokens_at(asked[0], asked[1])]
        case "row":
            return [rows.row(int(asked[0][0]))]
        case "lengths":
            return [rows.lengths()]
        case "before":
            return [rows.members_before(asked[0])]
        case "members":  # numbers of the passages in a range of rows
            low, high = asked[0].tolist()
            return [part.numbers[rows.members_in(low, high)]]
        case "sizes":  # number of passages of each row
            return [np.diff(rows.members_before(np.arange(len(rows) + 1)))]
    raise ValueError(f"a part of an index answers no question {what!r}")
