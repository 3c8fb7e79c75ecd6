"""What a run has done and what it shows: the journal ``fit.jsonl``, the clock, and the line of progress.

Each stage that was done has a record in the journal, with its seconds and its result. The first line
holds the data and the options of all stages, so a run that is called again goes on with all that is done. The
seconds of a run are written now and then, so that a call after a kill knows what was spent. On a terminal the
line of progress is redrawn; elsewhere it is written once a minute. What a stage prints goes into
``stages/NAME.log``.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from grls.errors import ConfigError, DataError, GrlsError, MismatchError, Option, WriteError, out_of_memory
from grls.evaluation.measures import cutoff
from grls.fitting.search import TimeIsUp
from grls.io.files import read_json, refuse_unwritable, write_json
from grls.io.progress import EVERY, Progress, duration, reporting
from grls.io.work import Journal

JOURNAL = "fit.jsonl"
CLOCK = "stages/clock.json"

_NAMES, _NUMBERS = 30, (21, 9, 12)  # widths of the columns of the table that fills
_REDRAWN = 0.5  # seconds between two drawings on a terminal
_WRITTEN = 15.0  # seconds between two writings of the clock
_GRACE, _AGAIN = 1.05, 5.0
"""What is no loop, such as opening a model, ends after so many times its time (repeated after seconds)."""
_TELLING, _LATE = 10.0, 1.5
"""Seconds, and a tenth of the time, after which a loop ends that would take so many times what is left."""


def fit_journal(
    output: str | Path, data: str, options: Mapping[str, Any] | None = None, measure: str | None = None
) -> Journal:
    """The journal of the stages that are done.

    ``output`` is empty, missing, or of a run over data of the same fingerprint with the same ``options``.
    """
    refuse_other_output(Path(output), data, measure)
    journal = Journal(Path(output) / JOURNAL, {"data": data, **(options or {})}, dict)
    if not journal.known:  # the folder is of a run before anything else is written there
        journal.put("begin", {})
    return journal


def refuse_other_output(output: Path, data: str, measure: str | None = None) -> None:
    """Refuse a folder in which a run over these data, by this measure, could not work. Nothing is written."""
    refuse_unwritable(output, folder=True)
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; give the output another name.")
    if not output.is_dir() or not any(output.iterdir()):
        return
    file = output / JOURNAL
    if not file.is_file():
        raise ConfigError(
            f"{output} is not empty and holds no {JOURNAL}, so it is of no run that could go on: give "
            "another output, or empty it."
        )
    with suppress(KeyError, OSError, RecursionError, TypeError, ValueError):  # the journal names the damage
        with file.open(encoding="utf-8") as stream:
            before = json.loads(stream.readline())["settings"]
        if before["data"] != data:
            raise MismatchError(
                f"{output} holds a run over other data: give the same data to go on, or another output."
            )
        if measure is not None and cutoff(measure) > before["depth"]:
            raise MismatchError(
                f"{Option('measure', measure)} reads deeper than the {before['depth']} passages that this "
                "run ranks: give another output."
            )


class FitClock:
    """Counts the seconds of a run, and writes them now and then.

    ``budget``: seconds for everything, or with ``adds`` for this call alone. ``begun``: when this call began,
    by ``now``; None: now.
    """

    def __init__(
        self,
        output: Path,
        budget: float = inf,
        adds: bool = False,
        begun: float | None = None,
        now: Callable[[], float] = monotonic,
    ):
        self._file = output / CLOCK
        self._spent = 0.0
        with suppress(DataError, KeyError, OSError, OverflowError, TypeError, ValueError):  # unknown
            self._spent = max(0.0, float(read_json(self._file)["seconds"]))
        self.budget = budget + self._spent if adds else budget
        self._now = now
        self._written = now()
        self._begun = self._written if begun is None else begun

    @property
    def seconds(self) -> float:
        return self._spent + self._now() - self._begun

    @property
    def left(self) -> float:
        return max(0.0, self.budget - self.seconds)

    def write(self, every: float = 0.0) -> None:
        """Write the seconds, if the last time was so many seconds ago."""
        if self._now() - self._written >= every:
            self._written = self._now()
            with suppress(WriteError):  # a full disk: the stage says so
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._file, {"seconds": round(self.seconds, 1)})


def failure(error: Exception) -> str:
    """Why a part of a run failed, in a line."""
    if out_of_memory(error):
        return "there is too little memory for it"
    known = isinstance(error, (GrlsError, TimeIsUp))
    return str(error) if known else f"{type(error).__name__}: {error}"


class FitProgress:
    def __init__(self, logs: Path, clock: FitClock, shown: bool = True) -> None:
        self.logs = logs
        self.best = ""
        self._clock, self._drawn = clock, monotonic()
        self._lines, self._stream = sys.stdout, sys.stderr if shown else None
        self._terminal = self._stream is not None and self._stream.isatty()
        self._name = self._work = ""
        self._notes: list[str] = []
        self._begun, self._end, self._again, self._late = 0.0, inf, False, False
        self._timed = False

    def note(self, text: str) -> None:
        """A line below the next row."""
        self._notes.append(text)

    def row(self, name: str, *cells: str) -> None:
        """A row of the table that fills: a candidate or stage, numbers or a text."""
        *numbers, text = cells
        columns = "".join(f"{cell:>{width}}" for cell, width in zip(numbers, _NUMBERS, strict=False))
        self.say(f"{name:<{_NAMES}}{columns}  {text}".rstrip())
        for line in self._notes:
            self.say(f"  {line}")
        self._notes.clear()

    def say(self, text: str) -> None:
        if self._stream is not None:
            self._clear()
            print(text, file=self._lines, flush=True)  # not into the log of a stage

    @contextmanager
    def stage(self, name: str, seconds: float = inf, again: bool = False) -> Iterator[None]:
        """The context of a stage: its output goes into its log, its loops into the line.

        Its loops raise :class:`~grls.fitting.search.TimeIsUp` after so many seconds, and where they have
        shown that they will; not if it goes on ``again``.
        """
        self._again = again
        self._late = False
        timed = self._timed = seconds < inf and _has_timer()
        if timed:
            before, (rest, every) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
            signal.signal(signal.SIGALRM, self._stop)
        begun = monotonic()
        self.logs.mkdir(parents=True, exist_ok=True)
        self._name, self._work = name, ""
        self.limit(seconds)
        log = self.logs / f"{name.replace(' ', '-')}.log"
        with log.open("a", encoding="utf-8") as stream:
            try:
                with redirect_stdout(stream), redirect_stderr(stream), reporting(self._heard):
                    self._show()
                    yield
            except Exception as error:
                if self._late and not isinstance(error, TimeIsUp):  # who reads options makes it their error
                    raise TimeIsUp from error
                if not isinstance(error, (GrlsError, TimeIsUp)):
                    traceback.print_exc(file=stream)  # it is left out, and said in one line
                raise
            finally:
                self.limit(inf)
                if timed:
                    signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
                    if rest:  # the timer of the caller goes on
                        rest = max(0.001, rest - (monotonic() - begun))
                        signal.setitimer(signal.ITIMER_REAL, rest, every)
                self._clear()
                self._clock.write()
        if not log.stat().st_size:
            log.unlink()

    def limit(self, seconds: float) -> None:
        """Let loops raise :class:`TimeIsUp` after so many seconds from now."""
        self._begun = monotonic()
        self._end = self._begun + seconds
        if self._timed:
            late = 0.0 if seconds == inf else max(0.1, _GRACE * seconds)
            signal.setitimer(signal.ITIMER_REAL, late, _AGAIN)

    def _stop(self, *_: object) -> None:
        self._late = True
        raise TimeIsUp

    def at(self, work: str) -> None:
        """Say how far a stage is that watches its time itself, such as a training."""
        self._work = work
        self.limit(inf)
        self._show()

    def line(self) -> str:
        left = self._clock.left
        parts = [f"{self._name}: {self._work}" if self._work else self._name, self.best]
        parts += [f"{duration(left)} left"] if left < inf else []
        return "; ".join(filter(None, parts))

    def _heard(self, loop: Progress) -> None:
        self._work = loop.standing()
        self._show()
        left, needed = self._end - monotonic(), loop.left() or 0.0
        telling = not self._again and loop.age() > max(_TELLING, 0.1 * (self._end - self._begun))
        if left < 0 or (telling and needed > _LATE * left):
            self._late = True
            raise TimeIsUp(seconds=needed)

    def _show(self) -> None:
        self._clock.write(_WRITTEN)
        if self._stream is not None and monotonic() - self._drawn >= (_REDRAWN if self._terminal else EVERY):
            self._drawn = monotonic()
            start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
            print(f"{start}{self.line()}", end=end, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._terminal and self._stream is not None:
            print("\r\x1b[K", end="", file=self._stream, flush=True)


def _has_timer() -> bool:
    """Whether a timer may interrupt this thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
