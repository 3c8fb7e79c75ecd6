"""How far a loop of minutes is: a bar on a terminal, a line a minute where there is none (nohup, SLURM).

Loops may be nested: a line names the outer ones first, and all of them together write one a minute. What
takes long without a loop of its own (sorting) is told of by :func:`waiting`. Everything goes to standard
error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from time import monotonic
from typing import Any

from tqdm import tqdm

EVERY = 60.0
"""Seconds between two lines."""

_open: list[Progress] = []
"""The loops that run, the outermost first."""
_told = 0.0
"""When the last line was written, or the outermost loop began."""
_showing: ContextVar[bool] = ContextVar("showing", default=False)


@contextmanager
def showing() -> Iterator[None]:
    """Within this context, that of a command, loops tell of themselves unless they are told not to.

    A call from Python, or one in another thread, shows only what it asks for.
    """
    before = _showing.set(True)
    try:
        yield
    finally:
        _showing.reset(before)


class Progress:
    """The progress of a loop, as a context.

    Args:
        total: How many there are to do; None: nobody knows.
        label: What is done to them.
        unit: What they are, in the plural.
        done: How many are done already, by an earlier run.
        shown: False shows nothing; None: shown within :func:`showing`, if there is more than one to do.
    """

    def __init__(self, total: int | None, label: str, unit: str, done: int = 0, shown: bool | None = True):
        self.total = total
        self.label = label
        self.unit = unit
        self.done = self._before = done if total is None else min(done, total)
        self._note: Callable[[], str] | None = None
        self._shown = (_showing.get() and total not in (0, 1)) if shown is None else shown
        self._bar: Any = None
        self._begun = 0.0

    def __enter__(self) -> Progress:
        global _told
        self._begun = monotonic()
        if not self._shown:
            return self
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = tqdm(
                total=self.total, initial=self.done, desc=self.label, unit=f" {self.unit}", leave=False
            )
        elif not _open:
            _told = self._begun
        _open.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The loop has ended."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self in _open:
            _open.remove(self)

    def update(self, count: int = 1, note: Callable[[], str] | None = None) -> None:
        """So many more are done; ``note`` is asked where a line is written, for what else to say."""
        if self.total is not None:
            count = min(count, self.total - self.done)
        self.done += count
        self._note = note
        if self._bar is not None:
            self._bar.update(count)
        elif self._shown:
            _tell()

    def standing(self) -> str:
        """Such as ``embed 512 of 2,000 passages``."""
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.label} {self.done:,}{of} {self.unit}"

    def pace(self) -> str:
        """What there is to say of it, how fast it goes, and what is left."""
        note = "" if self._note is None else f"{self._note()}, "
        return f"{note}{self._speed()}"

    def _speed(self) -> str:
        seconds = max(monotonic() - self._begun, 1e-9)
        rate = (self.done - self._before) / seconds
        if not rate:
            return f"{duration(seconds)} so far"
        left = "" if self.total is None else f", {duration((self.total - self.done) / rate)} left"
        return f"{rate:,.{0 if rate >= 10 else 2}f} a second{left}"


@contextmanager
def waiting(label: str, shown: bool | None = True) -> Iterator[None]:
    """Tell of something that takes long and has no loop: on a terminal at once, elsewhere every minute.

    Args:
        label: What is done, such as ``sort 12,000 passages``.
        shown: False shows nothing; None: shown within :func:`showing`.
    """
    if shown is None:
        shown = _showing.get()
    if not shown or sys.stderr is None:
        yield
        return
    ended = Event()
    terminal = sys.stderr.isatty()
    begun = monotonic()

    def tell() -> None:
        while not ended.wait(1.0 if terminal else EVERY):
            told = f"{label}: {duration(monotonic() - begun)} so far"
            write_to_stderr(f"\r{told}", "") if terminal else write_to_stderr(told)

    if terminal:
        write_to_stderr(label, "")
    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if terminal:
            write_to_stderr("\r\x1b[K", "")


def duration(seconds: float) -> str:
    """Such as ``45 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def write_to_stderr(text: str, end: str = "\n") -> None:
    """Write to standard error, at once."""
    if sys.stderr is not None:
        print(text, end=end, file=sys.stderr, flush=True)


def _tell() -> None:
    """Write where all loops stand, unless something was written within the last minute."""
    global _told
    now = monotonic()
    if _open and now - _told >= EVERY:
        _told = now
        outer = "".join(f"{some.standing()}; " for some in _open[:-1])
        write_to_stderr(f"{outer}{_open[-1].standing()}, {_open[-1].pace()}")
