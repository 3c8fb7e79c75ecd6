"""Counts the steps of a trainer on a clock, and ends the training when its time is up.

The training ends as it would after its last step: dev is measured once more, and the best weights are kept.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from grls.train.core.clock import TrainingClock


class TimeLimit(L.Callback):
    """Ends a Lightning trainer.

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
