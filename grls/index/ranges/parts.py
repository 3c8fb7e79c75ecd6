"""The parts of an index: what a part answers, and the parts in this process.

Legend: S states, A allowed tokens, R rows of a part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from grls.index.base import Segment
from grls.index.rows import Array, Form

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
            what: A name of :data:`ANSWERS`.
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
        return {part: ANSWERS[what](self._parts[part], arrays) for part, arrays in asked.items()}


def facts_of(part: RangePart) -> Facts:
    """The size of a part."""
    rows = part.segment.rows
    return Facts(len(rows), len(rows.members), rows.longest, rows.end, rows.form, part.segment.start())


def _allowed(part: RangePart, asked: Arrays) -> list[Array]:
    """Tokens, states and offsets of :meth:`~grls.index.base.ConstraintIndex.allowed`, and spans."""
    allowed = part.segment.allowed(asked[0])
    return [*allowed, *part.segment.span(allowed.states)]


def _span(part: RangePart, asked: Arrays) -> list[Array]:
    return list(part.segment.span(asked[0]))


def _tokens_at(part: RangePart, asked: Arrays) -> list[Array]:
    return [part.segment.rows.tokens_at(asked[0], asked[1])]


def _row(part: RangePart, asked: Arrays) -> list[Array]:
    return [part.segment.rows.row(int(asked[0][0]))]


def _lengths(part: RangePart, asked: Arrays) -> list[Array]:
    return [part.segment.rows.lengths()]


def _before(part: RangePart, asked: Arrays) -> list[Array]:
    return [part.segment.rows.members_before(asked[0])]


def _members(part: RangePart, asked: Arrays) -> list[Array]:
    """Numbers of the passages in a range of rows."""
    low, high = asked[0].tolist()
    return [part.numbers[part.segment.rows.members_in(low, high)]]


def _sizes(part: RangePart, asked: Arrays) -> list[Array]:
    """Number of passages of each row."""
    rows = part.segment.rows
    return [np.diff(rows.members_before(np.arange(len(rows) + 1)))]


ANSWERS = {
    "allowed": _allowed,
    "before": _before,
    "lengths": _lengths,
    "members": _members,
    "row": _row,
    "sizes": _sizes,
    "span": _span,
    "tokens_at": _tokens_at,
}
"""The questions that a part answers: name -> function of the part and the arrays of the question."""
