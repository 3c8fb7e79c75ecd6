"""What a run shows: a line for every stage, and one line of progress with the time that is left.

On a terminal the line is redrawn; elsewhere it is written once a minute. What a stage prints itself goes into
its log, ``stages/NAME.log``. A stage with an allowance ends where its loops show that it would not be done.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from time import monotonic
from typing import IO

from grls.errors import GrlsError
from grls.fitting.journal import FitClock
from grls.fitting.search import TimeIsUp
from grls.io.progress import EVERY, Progress, duration, reporting

_REDRAWN = 0.5
"""Seconds between two drawings on a terminal."""
_WRITTEN = 15.0
"""Seconds between two writings of the clock."""
_TELLING = 10.0, 0.25
"""Seconds, and the share of the allowance, after which the pace of a loop tells when it will end."""
_LATE = 4.0
"""A loop that would take so many times what is left is ended. (The longest texts come first.)"""


class FitProgress:
    """The progress of a run.

    Args:
        logs: Folder of the logs of stages.
        clock: The clock of the run.
        shown: Whether anything is shown.
    """

    def __init__(self, logs: Path, clock: FitClock, shown: bool = True) -> None:
        self.logs = logs
        self.best = ""
        """The best so far, for the line."""
        self._clock = clock
        self._shown = shown
        self._lines: IO[str] = sys.stdout
        self._stream: IO[str] | None = sys.stderr if shown else None
        self._terminal = self._stream is not None and self._stream.isatty()
        self._drawn = monotonic()
        self._name = self._what = ""
        self._end: float | None = None
        self._telling = 0.0

    def say(self, text: str) -> None:
        """Print lines for people."""
        if self._shown:
            self._clear()
            print(text, file=self._lines, flush=True)  # not into the log of a stage

    @contextmanager
    def stage(self, name: str, allowance: float | None = None) -> Iterator[None]:
        """The context of a stage: its output goes into its log, its loops into the line.

        Args:
            name: Its name.
            allowance: Seconds after which its loops raise :class:`~grls.fitting.search.TimeIsUp`, and before
                which they do where their pace leaves no hope; None: no limit.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        self._name, self._what = name, ""
        self.limit(allowance)
        log = self.logs / f"{name.replace(' ', '-')}.log"
        with log.open("a", encoding="utf-8") as stream:
            try:
                with redirect_stdout(stream), redirect_stderr(stream), reporting(self._heard):
                    self._show()
                    yield
            except Exception as error:
                if not isinstance(error, (GrlsError, TimeIsUp)):
                    traceback.print_exc(file=stream)  # it is left out, and said in one line
                raise
            finally:
                self._clear()
                self._clock.write()
        if not log.stat().st_size:
            log.unlink()

    def limit(self, allowance: float | None) -> None:
        """Let loops raise :class:`TimeIsUp` after so many seconds from now; see :meth:`stage`."""
        self._end = None if allowance is None else monotonic() + allowance
        self._telling = max(_TELLING[0], _TELLING[1] * (allowance or 0.0))

    def at(self, what: str) -> None:
        """Say how far a stage is that keeps to its time itself, such as a training."""
        self._what, self._end = what, None
        self._show()

    def line(self) -> str:
        """The line of progress."""
        left = self._clock.left
        parts = [f"{self._name}: {self._what}" if self._what else self._name, self.best]
        parts += [] if left is None else [f"{duration(left)} left"]
        return "; ".join(filter(None, parts))

    def _heard(self, loop: Progress) -> None:
        self._what = loop.standing()
        self._show()
        if self._end is None:
            return
        left, needed = self._end - monotonic(), loop.left() if loop.age() > self._telling else None
        if left < 0 or (needed is not None and needed > _LATE * left):
            raise TimeIsUp

    def _show(self) -> None:
        self._clock.write(_WRITTEN)
        if self._stream is not None and monotonic() - self._drawn >= (_REDRAWN if self._terminal else EVERY):
            self._drawn = monotonic()
            start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
            print(f"{start}{self.line()}", end=end, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._terminal and self._stream is not None:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
