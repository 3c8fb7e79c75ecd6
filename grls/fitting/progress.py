"""What a run shows: a few lines a stage, and one line with the time that is left for everything.

On a terminal the line is redrawn; elsewhere it is written once a minute. What a stage prints itself goes into
its log, ``stages/NAME.log``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import IO

from grls.fitting.clock import TimeIsUp
from grls.io.progress import EVERY, Progress, duration, reporting

_REDRAWN = 0.5
"""Seconds between two drawings on a terminal."""
_SHORT = 5.0
"""Seconds up to which a loop is a part of the step that a stage is at, and is not shown."""


def shown_name(key: str) -> str:
    """The key of a stage for people: a stage that has the name of its system is called so once."""
    return " ".join(dict.fromkeys(key.split()))


class FitProgress:
    """The progress of a run.

    Args:
        logs: Folder of the logs of stages.
        shown: Whether anything is shown.
    """

    def __init__(self, logs: Path, shown: bool = True):
        self.logs = logs
        self._shown = shown
        self._stream: IO[str] | None = sys.stderr if shown else None
        self._terminal = self._stream is not None and self._stream.isatty()
        self._left: dict[str, float] = {}
        self._done = 0
        self._name = ""
        self._begun = 0.0
        self._share: float | None = None
        self._loop: Progress | None = None
        self._what = ""
        self._is_up: Callable[[], bool] | None = None

    def expect(self, left: Mapping[str, float]) -> None:
        """Say which stages are left, each with the estimate of its seconds."""
        self._left = dict(left)

    def say(self, text: str) -> None:
        """Print lines for people."""
        if self._shown:
            self._clear()
            print(text, flush=True)

    @contextmanager
    def stage(self, name: str, is_up: Callable[[], bool] | None = None) -> Iterator[None]:
        """The context of a stage: its output goes into its log, its loops into the line.

        Args:
            name: Its name.
            is_up: Asked whenever a loop of the stage goes on, until :meth:`at` is called; True ends the stage
                with :class:`~grls.fitting.clock.TimeIsUp`; None: it may take as long as it does.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        self._name, self._begun = name, monotonic()
        self.at(None, "")
        self._is_up = is_up
        ended = Event()
        teller = Thread(target=self._tell, args=(ended,), daemon=True)
        log = self.logs / f"{name.replace(' ', '-')}.log"
        with log.open("a", encoding="utf-8") as stream:
            teller.start()
            try:
                with redirect_stdout(stream), redirect_stderr(stream), reporting(self._heard):
                    yield
            finally:
                ended.set()
                teller.join()
                self._clear()
        if not log.stat().st_size:
            log.unlink()
        if name in self._left:
            del self._left[name]
            self._done += 1

    def at(self, share: float | None, what: str) -> None:
        """Say how far the stage is; one that does keeps to its time itself.

        Args:
            share: The share of the whole stage that is done, in [0, 1]; None: unknown.
            what: The same in words.
        """
        self._share, self._what, self._loop, self._is_up = share, what, None, None

    def line(self) -> str:
        """The line of progress."""
        name = shown_name(self._name)
        what = f"{name}: {self._what}" if self._what else name
        if not self._left:
            return what
        of = self._done + len(self._left)
        return f"[{self._done + 1}/{of}] {what}, about {duration(self._remaining())} left for all"

    def _heard(self, loop: Progress) -> None:
        """A loop of the stage, with others after it; a short one does not hide the step of a training."""
        if self._share is None or loop.age() > _SHORT:
            self._share, self._what, self._loop = None, loop.standing(), loop
        if self._is_up is not None and self._is_up():
            raise TimeIsUp

    def _remaining(self) -> float:
        """Seconds to the end of the run."""
        return self._here() + sum(seconds for name, seconds in self._left.items() if name != self._name)

    def _here(self) -> float:
        """Seconds to the end of the stage: by its share, else by its estimate, and what its loop needs."""
        past = monotonic() - self._begun
        if self._share is not None and self._share > 0 and past > 1:
            return past / self._share * (1 - self._share)
        loop = self._loop.left() if self._loop is not None else None
        return max(0.0, self._left.get(self._name, 0.0) - past, loop or 0.0)

    def _tell(self, ended: Event) -> None:
        while not ended.wait(_REDRAWN if self._terminal else EVERY):
            if self._stream is not None:
                start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
                print(f"{start}{self.line()}", end=end, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._terminal and self._stream is not None:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
