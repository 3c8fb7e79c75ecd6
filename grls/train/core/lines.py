"""A line of progress each minute where no terminal shows a bar (nohup, SLURM).

The progress bars of Lightning and transformers are for terminals. The module does not know what is trained.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import lightning as L

from grls.io.progress import Progress


def step_progress(total: float, done: int, rank_zero: bool) -> Progress:
    """The count of steps, shown by the first process where no terminal shows a bar."""
    shown = rank_zero and not (sys.stderr is not None and sys.stderr.isatty())
    return Progress(int(total) if math.isfinite(total) and total > 0 else None, "train", "steps", done, shown)


class TrainingLines(L.Callback):
    """Step, loss and remaining time of a Lightning trainer."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the count, at the step of a resumed run."""
        progress = step_progress(
            trainer.estimated_stepping_batches, trainer.global_step, trainer.is_global_zero
        )
        self._progress = progress.__enter__()

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
