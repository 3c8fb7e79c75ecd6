"""Lightning's trainer as all trainings here use it, and the callbacks of all of them.

It takes its processes from torchrun and its precision from the processor. Callbacks end a training whose
numbers are not finite or whose time is up, report progress without a terminal, and return freed memory.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.fit_loop import _FitLoop
from torch import Tensor
from torch.distributed.tensor import DTensor

from grls.errors import ConfigError, Option
from grls.io.progress import Progress, give_back_freed
from grls.models.option_names import TrainerPrecision
from grls.models.precision import accelerator, has_bfloat16, warn_of_emulation
from grls.train.core.checkpoints import kept_checkpoint, read_checkpoint
from grls.train.core.clock import TrainingClock
from grls.train.core.processes import FullyShard, launched, local

_PRECISE = Option("trainer.precision", "32-true", "auto")
SHARDED = ("fsdp", "fsdp_cpu_offload")
"""Strategies that shard weights (:class:`grls.train.core.processes.FullyShard`)."""


class _Epochs(_FitLoop):
    """Lightning's loop, resumed correctly at the end of an epoch with ``max_steps``.

    Lightning (2.6) assumes that every run with ``max_steps`` stopped within an epoch. Resumed at the end
    of one, it trains one more step in that epoch and counts it twice; resumed again, it ends at once.
    """

    def _iteration_based_training(self) -> bool:
        return False


class Trainer(L.Trainer):
    """Lightning's trainer, with a loop that resumes exactly where a run stopped.

    Args:
        precision: Lightning's precision, or ``auto``: ``bf16-mixed`` where the processor has instructions for
            it, else ``32-true``; null: ``32-true``.
        remedy: What to set in place of bfloat16 on a processor without instructions for it.
        kwargs: The other options of Lightning's trainer.
    """

    def __init__(
        self, *, precision: TrainerPrecision | None = None, remedy: Option = _PRECISE, **kwargs: Any
    ):
        device = torch.device("cpu") if kwargs.get("accelerator") == "cpu" else accelerator()
        if str(precision).startswith("bf16"):
            warn_of_emulation(device, str(remedy))
        if precision == "auto":
            precision = "bf16-mixed" if has_bfloat16(device) else "32-true"
        started = launched()
        if started is not None and kwargs.get("devices", "auto") == "auto":
            kwargs["devices"], kwargs["num_nodes"] = started
        if kwargs.get("strategy") in SHARDED:
            kwargs["strategy"] = FullyShard(cpu_offload="offload" in kwargs["strategy"])
        if isinstance(kwargs.get("strategy"), FullyShard):
            kwargs["inference_mode"] = False  # weights that are gathered there could not be trained
        super().__init__(precision=precision, **kwargs)
        loop = _Epochs(self, self.fit_loop.min_epochs, self.fit_loop.max_epochs)
        loop.epoch_loop = self.fit_loop.epoch_loop
        self.fit_loop = loop


def load_weights(trainer: L.Trainer, module: L.LightningModule, path: str | Path) -> int:
    """Read the weights of a checkpoint, in shards or not, into the module; returns its step."""
    if isinstance(trainer.strategy, FullyShard):
        return trainer.strategy.load_weights(path)
    checkpoint = read_checkpoint(path)
    module.load_state_dict(checkpoint["state_dict"])
    return int(checkpoint["global_step"])


STEPS = 50
"""Batches between two returns of memory."""


class GiveBackFreed(L.Callback):
    """Returns freed memory to the system every 50 batches, where the model is on a CPU.

    Inputs differ in length, so glibc's heap is soon full of holes that are too small for the next tensor.
    A fixed ``MALLOC_MMAP_THRESHOLD_`` helps, too, but a step takes a quarter longer.
    """

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        batches = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        if pl_module.device.type == "cpu" and batches % STEPS == 0:
            give_back_freed()


def spoiled(weights: Mapping[str, Any]) -> str | None:
    """The name of the first weights that are not finite, if any."""
    for name, value in weights.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if not bool(torch.isfinite(local(value)).all()):
            return name
    return None


class RefuseNaN(L.Callback):
    """Ends a training, on all processes, at the step whose loss, gradient or weights are not finite.

    One such step spoils every weight, and the next checkpoint would replace the last good one. A gradient is
    checked with the next loss, or before dev is measured or a checkpoint written, so that a GPU does not
    wait. With scaled gradients (float16) an infinite gradient only skips a step.
    """

    def __init__(self) -> None:
        self._norm: Tensor | None = None
        self._step = 0

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        self._look(trainer, pl_module, loss=loss)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients) if gradients else None
            self._norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            self._step = trainer.global_step + 1

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._look(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        trained = {name for name, _ in pl_module.named_parameters()}
        weights = {name: value for name, value in checkpoint["state_dict"].items() if name in trained}
        self._look(trainer, pl_module, broken=spoiled(weights))

    def _look(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        loss: Tensor | None = None,
        broken: str | None = None,
    ) -> None:
        """Check loss, gradient and weights; all processes raise if one of them is not finite on a process."""
        bad = torch.zeros(3, device=pl_module.device)
        if self._norm is not None:
            bad[0] = ~torch.isfinite(self._norm)
        if loss is not None:
            bad[1] = ~torch.isfinite(loss.detach())
        bad[2] = float(broken is not None)
        if trainer.world_size > 1:
            bad = trainer.strategy.reduce(bad, reduce_op="sum")
        gradient, of_loss, weights = bad.bool().tolist()
        self._norm = None
        if gradient:
            problem = f"the gradient is not finite at step {self._step}"
        elif of_loss:
            value = "not a number" if loss is None or bool(torch.isfinite(loss)) else loss.item()
            problem = f"the loss is {value} at step {trainer.global_step + 1}"
        elif weights:
            which = "" if broken is None else f" of {broken}"
            problem = f"weights{which} are not finite after step {trainer.global_step}"
        else:
            return
        checkpoint = kept_checkpoint(trainer)
        before = "" if checkpoint is None else f" The checkpoint {checkpoint}, from before, is intact."
        raise ConfigError(f"the training has diverged: {problem}.{before} Lower {pl_module.remedy}.")


class TimeLimit(L.Callback):
    """Counts the steps of a Lightning trainer on a clock, and ends it when its time is up.

    It ends as it would after its last step: dev is measured once more, and the best weights are kept.
    ``steps``: those of the whole training; None: as many as the trainer makes.
    """

    def __init__(self, clock: TrainingClock, steps: int | None = None):
        self.clock = clock
        self.steps = steps
        self._step = 0
        self._measuring = ExitStack()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        steps = trainer.estimated_stepping_batches if self.steps is None else self.steps
        self._step = trainer.global_step
        self.clock.start(self._step, int(steps) if math.isfinite(steps) and steps > 0 else None)
        if self.steps is not None and self._step >= self.steps:  # a run that is done is resumed
            self._end(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
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
        self._measuring.enter_context(self.clock.measuring())

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._measuring.close()


def is_metered(trainer: L.Trainer) -> bool:
    """Whether a meter hears of the steps, so that nothing is printed."""
    limits = [callback for callback in trainer.callbacks if isinstance(callback, TimeLimit)]  # type: ignore[attr-defined]
    return any(limit.clock.meter is not None for limit in limits)


def in_terminal() -> bool:
    """Whether a bar is seen; else lines tell the progress."""
    return sys.stderr is not None and sys.stderr.isatty()


class TrainingLines(L.Callback):
    """Step, loss and remaining time of a Lightning trainer, where no terminal shows a bar (nohup, SLURM).

    ``steps``: those of the whole training; None: as many as the trainer makes.
    """

    def __init__(self, steps: int | None = None) -> None:
        self.steps = steps
        self._progress: Progress | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        total = trainer.estimated_stepping_batches if self.steps is None else self.steps
        steps = int(total) if math.isfinite(total) and total > 0 else None
        shown = trainer.is_global_zero and not in_terminal()
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
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
