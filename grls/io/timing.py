"""Seconds and tokens of the parts of a search, counted for each thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal, NamedTuple, get_args

Part = Literal["encoder", "decoder", "constraint"]
"""The parts of a search: models read queries; models write, and score tokens; index and filters allow tokens.

The other seconds of a search go into the choice of beams, and into code without models.
"""
PARTS: tuple[Part, ...] = get_args(Part)


class PartSpent(NamedTuple):
    """Seconds of a part and its tokens: read, written, or allowed by a constraint."""

    seconds: float
    tokens: int


class PartCounts:
    """The counts of all parts of a search, for several threads."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys(PARTS, PartSpent(0.0, 0))
        self._adding = threading.Lock()

    def add(self, part: Part, seconds: float, tokens: int) -> None:
        with self._adding:
            old = self._parts[part]
            self._parts[part] = PartSpent(old.seconds + seconds, old.tokens + tokens)

    def step(self) -> None:
        """Report a step of a long search. A subclass may end the search here, by an error."""

    def __getitem__(self, part: Part) -> PartSpent:
        return self._parts[part]


class _Local(threading.local):
    spent: PartCounts | None = None


_thread = _Local()


@contextmanager
def counting(spent: PartCounts) -> Iterator[None]:
    """A context in which every :class:`PartTimer` block of this thread adds to these counts."""
    before, _thread.spent = _thread.spent, spent
    try:
        yield
    finally:
        _thread.spent = before


def report_step() -> None:
    if _thread.spent is not None:
        _thread.spent.step()


class PartTimer:
    """A block that belongs to a part; it may set ``tokens`` when it knows them.

    Blocks of a thread must not be nested, or their seconds count twice.
    """

    __slots__ = ("_begun", "_part", "_spent", "tokens")

    def __init__(self, part: Part, tokens: int = 0):
        self._part, self.tokens = part, tokens

    def __enter__(self) -> PartTimer:
        self._spent = _thread.spent
        if self._spent is not None:
            self._begun = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._spent is not None:
            self._spent.add(self._part, perf_counter() - self._begun, self.tokens)
            self._spent.step()
