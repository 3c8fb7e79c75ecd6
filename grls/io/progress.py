"""Progress of long loops: a bar on a terminal, else one line a minute on standard error; numbers and nouns;
texts that are safe to print.

Of nested loops all are shown in that line, the outer ones first.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread, Timer
from time import monotonic
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

EVERY = 60.0
"""Seconds between two lines."""

_open: list[Progress] = []
"""The running loops, the outermost first."""
_last_line = 0.0
"""When the last line was written, or the outermost loop began."""
_showing: ContextVar[bool] = ContextVar("showing", default=False)
_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("listener", default=None)


@contextmanager
def value_of(variable: ContextVar[T], value: T) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def showing() -> AbstractContextManager[None]:
    """The context of a command, in which loops show their progress by default."""
    return value_of(_showing, True)


@contextmanager
def telling_of_imports(seconds: float = 3.0) -> Iterator[None]:
    """A context that tells people at a terminal what they wait for, if PyTorch is still being imported."""

    def tell() -> None:
        specs = (getattr(sys.modules.get(name), "__spec__", None) for name in ("torch", "transformers"))
        if any(getattr(spec, "_initializing", False) for spec in specs):
            print("loading PyTorch, up to a minute on a busy machine", file=sys.stderr)

    timer = Timer(seconds, tell)
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reporting(listener: Callable[[Progress], None]) -> AbstractContextManager[None]:
    """A context whose loops show nothing and report to a listener: when they begin, and after updates."""
    return value_of(_listener, listener)


class Progress:
    """The progress of a loop, as a context.

    Args:
        total: Number of items; None: unknown.
        label: The work on the items, such as ``embed``.
        unit: The items, in the plural, such as ``passages``.
        done: Number of items that an earlier run has done.
        shown: False shows nothing; None shows progress within :func:`showing`, if there are several items.
    """

    def __init__(self, total: int | None, label: str, unit: str, done: int = 0, shown: bool | None = True):
        self.total = total
        self.label = label
        self.unit = unit
        self.done = self._before = done if total is None else min(done, total)
        self._note: Callable[[], str] | None = None
        self._shown = (_showing.get() and total not in (0, 1)) if shown is None else shown
        self._listener = None if total in (0, 1) else _listener.get()
        self._bar: Any = None
        self._begun = 0.0

    def __enter__(self) -> Progress:
        global _last_line
        self._begun = monotonic()
        if self._listener is not None:
            self._listener(self)
        if not self._shown or self._listener is not None:
            return self
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = tqdm(
                total=self.total, initial=self.done, desc=self.label, unit=f" {self.unit}", leave=False
            )
        elif not _open:
            _last_line = self._begun
        _open.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self in _open:
            _open.remove(self)

    def update(self, count: int = 1, note: Callable[[], str] | None = None) -> None:
        """Count items as done; ``note`` returns a text for the next line, if one is written."""
        global _last_line
        if self.total is not None:
            count = min(count, self.total - self.done)
        self.done += count
        self._note = note
        if self._listener is not None:
            self._listener(self)
        elif self._bar is not None:
            self._bar.update(count)
        elif self._shown and _open and (now := monotonic()) - _last_line >= EVERY:
            _last_line = now
            outer = "".join(f"{loop.standing()}; " for loop in _open[:-1])
            write_to_stderr(f"{outer}{_open[-1].standing()}, {_open[-1].pace()}")

    def age(self) -> float:
        return monotonic() - self._begun

    def standing(self) -> str:
        """How far the loop is, such as ``embed 512 of 2,000 passages``."""
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.label} {self.done:,}{of} {self.unit}"

    def pace(self) -> str:
        """The note of the last update, the speed, and the time left."""
        note = "" if self._note is None else f"{self._note()}, "
        rate, left = self._rate(), self.left()
        if not rate:
            return f"{note}{duration(self.age())} so far"
        ends = "" if left is None else f", {duration(left)} left"
        return f"{note}{rate:,.{0 if rate >= 10 else 2}f} a second{ends}"

    def left(self) -> float | None:
        rate = self._rate()
        return (self.total - self.done) / rate if self.total is not None and rate else None

    def _rate(self) -> float:
        return (self.done - self._before) / max(self.age(), 1e-9)


@contextmanager
def waiting(label: str, shown: bool | None = True) -> Iterator[None]:
    """Report a long step that is no loop: on a terminal at once, elsewhere every minute."""
    if shown is None:
        shown = _showing.get()
    if not shown or sys.stderr is None or _listener.get() is not None:
        yield
        return
    ended = Event()
    terminal = sys.stderr.isatty()
    begun = monotonic()

    def write() -> None:
        while not ended.wait(1.0 if terminal else EVERY):
            line = f"{label}: {duration(monotonic() - begun)} so far"
            write_to_stderr(f"\r{line}", "") if terminal else write_to_stderr(line)

    if terminal:
        write_to_stderr(label, "")
    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        if terminal:
            write_to_stderr("\r\x1b[K", "")


def duration(seconds: float) -> str:
    """A time as text, such as ``45 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def write_to_stderr(text: str, end: str = "\n") -> None:
    if sys.stderr is not None:
        print(text, end=end, file=sys.stderr, flush=True)


_SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")


def counted(count: int, noun: str, several: str | None = None) -> str:
    """A number with its noun: ``1 query``, ``1,200 queries``; the last word of the noun changes.

    ``several`` replaces the whole noun: ``counted(n, "query is", "queries are")``.
    """
    return f"{count:,} {noun if count == 1 else several or plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a regular noun: ``query`` -> ``queries``, ``cross-encoder`` -> ``cross-encoders``."""
    if _CONSONANT_Y.search(noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if _SIBILANT.search(noun) else f"{noun}s"


_GROUP = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_GIB = 2**30

_SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""OpenMP's threads sleep while they wait."""
_SPINNING_BRIEFLY = {"GOMP_SPINCOUNT": "1000"}
"""They spin for microseconds and then sleep: other processes may come later."""


def usable_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(_GROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, cores)


def free_memory() -> float | None:
    """Main memory that is free, within the limit of the control group, in GiB; None: unknown."""
    free = [int(line.split()[1]) * 1024 for line in _read(_MEMORY).splitlines() if "MemAvailable" in line]
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        free.append(int(limit) - int(used))
    return max(0, min(free)) / _GIB if free else None


def give_back_freed() -> bool:
    """Return all free pages of this process to the system; false if none, or without glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).malloc_trim(0))


def mean_load() -> float:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def wait_asleep_if_busy() -> None:
    """Let OpenMP's threads sleep while they wait, if more processes want to run than there are cores.

    Threads that spin keep the cores from the threads that they wait for. OpenMP reads the settings once, so
    call this before a numeric library is imported. The user's settings stay.
    """
    busy = mean_load() > usable_cores()
    for name, value in (_SLEEPING if busy else _SPINNING_BRIEFLY).items():
        os.environ.setdefault(name, value)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_ESCAPED = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_VISIBLE = _PICTURES | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def visible(text: str) -> str:
    """A text with visible signs for its control characters; line breaks and tabs stay.

    Escape sequences in a passage, a query or an id could clear the screen, hide text, or write to the
    clipboard.
    """
    return text.translate(_VISIBLE)


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """The columns in ``left`` are aligned left."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = []
    for row in rows:
        parts = [
            cell.ljust(w) if c in left else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def json_line(value: Any) -> str:
    """A value as one line of JSON, with its control characters escaped."""
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)


class Visible(logging.Formatter):
    """Formats log messages with :func:`visible`, since warnings quote foreign text."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))
