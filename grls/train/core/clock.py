"""The time of a training: its limit in seconds, a report of every step, and what it came to.

It loads nothing of Lightning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple

_FIRST = 0.1
"""Share of the limit that is kept for the first measurement on dev, whose time is not known."""


class TrainingStep(NamedTuple):
    """How far a training is.

    Attributes:
        stage: The training, such as ``biencoder`` or ``chains``.
        step: Optimizer steps so far.
        of: Optimizer steps of the whole training; None: unknown.
        seconds_left: Expected time to the end, within the limit; None: not known yet.
    """

    stage: str
    step: int
    of: int | None
    seconds_left: float | None


Meter = Callable[[TrainingStep], float | None]
"""Called when the first step begins, and after every step; returns the seconds that are left for the training
from now on, or None: the limit stays."""


class TrainingClock:
    """Counts the steps and the seconds of a training, from the moment it is made.

    Args:
        max_seconds: Longest time of the whole training, with reading of data, measurements on dev and
            checkpoints; None: no limit. At least one step is made.
        meter: Called with every step.
        now: The time in seconds.
    """

    def __init__(
        self,
        stage: str,
        max_seconds: float | None = None,
        meter: Meter | None = None,
        now: Callable[[], float] = monotonic,
    ):
        self.stage = stage
        self.max_seconds = max_seconds
        self.meter = meter
        self.time_is_up = False
        """Whether the limit ended the training before its last step."""
        self._now = now
        self._begun = now()
        self._steps_begun = self._begun
        self._before = self._step = 0
        self._of: int | None = None
        self._measured: list[float] = []
        self._last = 0.0
        self._last_end = self._begun, 0

    @property
    def seconds(self) -> float:
        return self._now() - self._begun

    def start(self, step: int, of: int | None) -> None:
        """The first step begins, after ``step`` steps of a resumed run; ``of``: all steps, if known."""
        self._before = self._step = step
        self._of = of
        self._steps_begun = self._now()
        self._last_end = self._steps_begun, len(self._measured)
        self._report()

    def stepped(self, step: int) -> bool:
        """A step has ended; returns whether the training has no time for another one.

        Time is kept for one more measurement on dev: as long as the longest so far (longer by as much as
        the last step was longer than the mean), and before the first one a tenth of the limit. The next
        step is thought to take as long as the last one, or the mean of all if that is longer.
        """
        self._step = step
        begun, measured = self._last_end
        self._last_end = self._now(), len(self._measured)
        self._last = self._last_end[0] - begun - sum(self._measured[measured:])
        self._report()
        if self.max_seconds is None or (self._of is not None and step >= self._of):
            return False
        steps = max(step - self._before, 1)
        mean = max(self._now() - self._steps_begun - sum(self._measured), 0.0) / steps
        measuring = _FIRST * self.max_seconds
        if self._measured:
            measuring = max(self._measured) * (max(1.0, self._last / mean) if mean else 1.0)
        needed = max(mean, self._last) + measuring
        self.time_is_up = self.seconds + needed > self.max_seconds
        return self.time_is_up

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The time within is that of a measurement on dev."""
        begun = self._now()
        try:
            yield
        finally:
            self._measured.append(self._now() - begun)

    def _report(self) -> None:
        if self.meter is None:
            return
        limit = None if self.max_seconds is None else max(self.max_seconds - self.seconds, 0.0)
        left, done = limit, self._step - self._before
        if self._of is not None and done:
            left = (self._now() - self._steps_begun) / done * (self._of - self._step)
            left = left if limit is None else min(left, limit)
        still = self.meter(TrainingStep(self.stage, self._step, self._of, left))
        if still is not None and self.max_seconds is not None:
            self.max_seconds = self.seconds + still


@dataclass(frozen=True)
class TrainingResult:
    """A training that has ended, with a model that is ready for use.

    Attributes:
        model: Folder of the model.
        logs: Its log: a folder with ``metrics.csv``.
        monitor: The measure on dev by which the model was chosen, such as ``dev_recall``; None: by none.
        best: Its best value; None: dev was not measured, and the model is that of the last step.
        steps: Optimizer steps of the run, those before it was resumed included.
        examples: Training examples.
        seconds: Seconds that this call took.
        time_is_up: Whether ``max_seconds`` ended the training before its last step.
    """

    model: Path
    logs: Path
    monitor: str | None
    best: float | None
    steps: int
    examples: int
    seconds: float
    time_is_up: bool
