"""The time of a run: what is left of its budget, and how much of it the next stage may take.

The seconds so far are written down now and then, so that a run which goes on after a kill has spent what it
measured, and what the step took that was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from grls.errors import DataError, WriteError
from grls.io.files import read_json, write_json

CLOCK = "stages/clock.json"
"""The file in the output of a run that is not done: its seconds so far."""

_WRITTEN = 15.0
"""Seconds between two writings of it."""

_ENDING = 15.0
"""Seconds that are kept for the end of a run, at most a tenth of its budget."""

_AIM = 0.97
"""The share of a budget that is aimed at: stages end a little late."""


class TimeIsUp(Exception):  # noqa: N818  it is no error of the run: what is done already is compared
    """A stage has used all the time of the run."""


class FitClock:
    """Counts the seconds of a run.

    Args:
        budget: The time for everything in seconds; None: no limit.
        spent: Seconds of earlier calls.
        now: The time in seconds.
    """

    def __init__(self, budget: float | None = None, spent: float = 0.0, now: Callable[[], float] = monotonic):
        self.budget = budget
        self._spent = spent
        self._now = now
        self._begun = now()

    @property
    def seconds(self) -> float:
        """Seconds of the whole run so far."""
        return self._spent + self._now() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds that are left; None: there is no limit."""
        return None if self.budget is None else max(0.0, _AIM * self.budget - self.seconds)

    @property
    def is_up(self) -> bool:
        """Whether the time that is left is needed for the end of the run."""
        left = self.left
        return left is not None and left < min(_ENDING, 0.1 * (self.budget or 0.0))

    def allowance(self, estimate: float, later: float) -> float | None:
        """Seconds that a stage may take; None: there is no limit.

        What the later stages do not need is its own. If time is short, all get the same share of their
        estimates.

        Args:
            estimate: The estimate of its time.
            later: The sum of the estimates of the stages after it.
        """
        left = self.left
        if left is None:
            return None
        return max(left - later, left * estimate / max(estimate + later, 1e-9))


def spent_seconds(output: Path) -> float:
    """The seconds that a run had spent when it was cut off; 0: unknown."""
    try:
        return max(0.0, float(read_json(output / CLOCK)["seconds"]))
    except (DataError, KeyError, OSError, OverflowError, TypeError, ValueError):
        return 0.0


@contextmanager
def kept_clock(output: Path, clock: FitClock) -> Iterator[None]:
    """The time in which a run works: its seconds are on disk until it is done.

    Args:
        output: The folder of the run.
        clock: Its clock.
    """
    file, ended = output / CLOCK, Event()

    def write() -> None:
        if file.parent.is_dir():  # a run that can do nothing removes what it has made
            with suppress(WriteError):  # a full disk: the stage says so
                write_json(file, {"seconds": round(clock.seconds, 1)})

    def write_now_and_then() -> None:
        while not ended.wait(_WRITTEN):
            write()

    writer = Thread(target=write_now_and_then, daemon=True)
    writer.start()
    done = False
    try:
        yield
        done = True
    finally:
        ended.set()
        writer.join()
        if done:
            file.unlink(missing_ok=True)
        else:
            write()
