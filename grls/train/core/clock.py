"""The time of a training: its limit in seconds, and a report of every step.

A training counts its steps here and asks whether its time is up. The module does not know what is trained.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from grls.errors import bounded
from grls.io.progress import Progress

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
        stage: The training, for the reports.
        max_seconds: Longest time of the whole training, with reading of data, measurements on dev and
            checkpoints; None: no limit. At least one step is made.
        meter: Called with every step; None: no reports.
        now: The time in seconds.

    Raises:
        ConfigError: The limit is not above 0.
    """

    def __init__(
        self,
        stage: str,
        max_seconds: float | None = None,
        meter: Meter | None = None,
        now: Callable[[], float] = monotonic,
    ):
        bounded("(0, inf]", max_seconds=max_seconds)
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
        """Seconds since the training began."""
        return self._now() - self._begun

    def start(self, step: int, of: int | None) -> None:
        """The first step begins.

        Args:
            step: Steps of the run that is resumed, else 0.
            of: Steps of the whole training; None: unknown.
        """
        self._before = self._step = step
        self._of = of
        self._steps_begun = self._now()
        self._last_end = self._steps_begun, len(self._measured)
        self._report()

    def stepped(self, step: int) -> bool:
        """A step has ended; returns whether the training has no time for another one.

        Time is kept for one more measurement on dev: as long as the longest so far (longer by as much as the
        last step was longer than the mean of all), and before the first one a tenth of the limit. The next
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


class TimeLimit(L.Callback):
    """Counts the steps of a Lightning trainer on a clock, and ends it when its time is up.

    It ends as it would after its last step: dev is measured once more, and the best weights are kept.

    Args:
        clock: The clock of the training.
        steps: Optimizer steps of the whole training; None: as many as the trainer makes.
    """

    def __init__(self, clock: TrainingClock, steps: int | None = None):
        self.clock = clock
        self.steps = steps
        self._step = 0
        self._measuring: AbstractContextManager[None] | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the count, at the step of a resumed run."""
        steps = trainer.estimated_stepping_batches if self.steps is None else self.steps
        self._step = trainer.global_step
        self.clock.start(self._step, int(steps) if math.isfinite(steps) and steps > 0 else None)
        if self.steps is not None and self._step >= self.steps:  # a run that is done is resumed
            self._end(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count an optimizer step; all processes end together."""
        if trainer.global_step == self._step:  # gradients are accumulated
            return
        self._step = trainer.global_step
        ends = self.clock.stepped(self._step)
        if self.clock.max_seconds is not None and trainer.world_size > 1:
            ends = bool(trainer.strategy.broadcast(ends))
        if ends or (self.steps is not None and self._step >= self.steps):
            self._end(trainer)

    def _end(self, trainer: L.Trainer) -> None:
        # End with this batch, after a measurement on dev. The checkpoint to resume from is written within the
        # epoch: at its end, it would count as complete.
        trainer.should_stop = True
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        if trainer.check_val_every_n_epoch is not None:
            trainer.check_val_every_n_epoch = 1
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and trainer.enable_validation:
                callback._save_on_train_epoch_end = False
                callback._every_n_epochs = 1

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The measurement on dev begins."""
        self._measuring = self.clock.measuring()
        self._measuring.__enter__()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The measurement on dev ends."""
        if self._measuring is not None:
            self._measuring.__exit__(None, None, None)
            self._measuring = None


def is_metered(trainer: L.Trainer) -> bool:
    """Whether a meter hears of the steps, so that nothing is printed."""
    limits = [callback for callback in trainer.callbacks if isinstance(callback, TimeLimit)]  # type: ignore[attr-defined]
    return any(limit.clock.meter is not None for limit in limits)


class TrainingLines(L.Callback):
    """Step, loss and remaining time of a Lightning trainer, where no terminal shows a bar (nohup, SLURM)."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the count, at the step of a resumed run."""
        total = trainer.estimated_stepping_batches
        steps = int(total) if math.isfinite(total) and total > 0 else None
        shown = trainer.is_global_zero and not (sys.stderr is not None and sys.stderr.isatty())
        self._progress = Progress(steps, "train", "steps", trainer.global_step, shown).__enter__()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print a line if it is due. Only then the loss is read, since reading it waits for the GPU."""
        if self._progress is None:
            return
        loss = outputs["loss"] if isinstance(outputs, dict) and "loss" in outputs else outputs

        def note() -> str:
            value = "" if loss is None else f", loss {float(loss):.4f}"
            return f"epoch {trainer.current_epoch + 1}{value}"

        self._progress.update(trainer.global_step - self._progress.done, note)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Close after an error."""
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Close at the end of the training."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
