"""Seconds of the parts of a search, and tokens, counted for a thread that asks for it.

:func:`counting` asks for the counts; then every :class:`PartTimer` block in this thread adds to them. In a
thread without it, a block costs a look-up. A search has the parts

* ``encoder``: models read queries,
* ``decoder``: models write, and score what they may write,
* ``constraint``: the index and the filters say what may be written.

What remains of the seconds of a search is choosing beams, and everything that is no model.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal, NamedTuple, get_args

Part = Literal["encoder", "decoder", "constraint"]
PARTS: tuple[Part, ...] = get_args(Part)


class PartSpent(NamedTuple):
    """What a part has come to.

    Attributes:
        seconds: Its seconds.
        tokens: The tokens that it read or wrote; of a constraint: those that it allowed.
    """

    seconds: float
    tokens: int


class PartCounts:
    """The counts of all parts; several threads may add to them."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys(PARTS, PartSpent(0.0, 0))
        self._adding = threading.Lock()

    def add(self, part: Part, seconds: float, tokens: int) -> None:
        """Add to a part."""
        with self._adding:
            old = self._parts[part]
            self._parts[part] = PartSpent(old.seconds + seconds, old.tokens + tokens)

    def __getitem__(self, part: Part) -> PartSpent:
        return self._parts[part]


class _Local(threading.local):
    spent: PartCounts | None = None


_thread = _Local()


@contextmanager
def counting(spent: PartCounts) -> Iterator[None]:
    """Add what this thread does to these counts."""
    before, _thread.spent = _thread.spent, spent
    try:
        yield
    finally:
        _thread.spent = before


class PartTimer:
    """A block that belongs to a part.

    Blocks of the same thread must not lie in each other, or their seconds count twice.

    Args:
        part: The part.
        tokens: Its tokens; a block may set ``tokens`` when it knows them.
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
