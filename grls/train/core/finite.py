"""Ends a training at the step whose loss, gradient or weights are not finite numbers.

One such step spoils every weight, and the next checkpoint would replace the last good one. All processes end
together. The module does not know what is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from grls.errors import ConfigError, Option
from grls.train.core.checkpoints import kept_checkpoint
from grls.train.core.processes import local

GENERATOR = (
    f"{Option('model.learning_rate')}, clip gradients ({Option('trainer.gradient_clip_val', 1)}), or train "
    f"in {Option('trainer.precision', '32-true')}"
)
"""Remedy for a stage of ``grls train``."""
RERANKER = f"{Option('fit.learning_rate')}"
"""Remedy for ``grls train reranker``."""


def spoiled(weights: Mapping[str, Any]) -> str | None:
    """The name of the first weights that are not finite; None: all are finite."""
    for name, value in weights.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if not bool(torch.isfinite(local(value)).all()):
            return name
    return None


class RefuseNaN(L.Callback):
    """Checks each loss before the backward pass, and each gradient before its weights are used.

    A gradient is checked together with the next loss, or before dev is measured or a checkpoint written, so
    that a GPU does not wait. With scaled gradients (float16) an infinite gradient only skips a step.

    Args:
        remedy: The options to change, for the error text.
    """

    def __init__(self, remedy: str = GENERATOR):
        self.remedy = remedy
        self._norm: Tensor | None = None
        self._step = 0

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        """Check the loss of a step, and the gradient of the step before."""
        self._look(trainer, pl_module, loss=loss)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradient."""
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients) if gradients else None
            self._norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            self._step = trainer.global_step + 1

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the last gradient."""
        self._look(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Check the last gradient and the weights, before an earlier checkpoint is replaced."""
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
        """Check the loss, the gradient and the weights of all processes together.

        Raises:
            ConfigError: One of them is not finite on a process; all processes raise.
        """
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
            self._refuse(trainer, f"the gradient is not finite at step {self._step}")
        if of_loss:
            value = "not a number" if loss is None or bool(torch.isfinite(loss)) else loss.item()
            self._refuse(trainer, f"the loss is {value} at step {trainer.global_step + 1}")
        if weights:
            which = "" if broken is None else f" of {broken}"
            self._refuse(trainer, f"weights{which} are not finite after step {trainer.global_step}")

    def _refuse(self, trainer: L.Trainer, what: str) -> None:
        kept = kept_checkpoint(trainer)
        before = "" if kept is None else f" The checkpoint {kept}, from before, is intact."
        raise ConfigError(f"the training has diverged: {what}.{before} Lower {self.remedy}.")
