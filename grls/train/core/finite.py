"""Ends a training at the step whose loss, gradient or weights are not finite numbers.

One such step spoils every weight, and the next checkpoint would take the place of the last good one. All
processes end together, whichever of them has seen it. It does not know what is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor

from grls.errors import ConfigError
from grls.train.core.checkpoints import kept_checkpoint

GENERATOR = (
    "--model.learning_rate, clip gradients (--trainer.gradient_clip_val 1), or train in --trainer.precision "
    "32-true"
)
"""What to try, of a stage of ``grls train``."""
RERANKER = "--learning_rate"
"""Likewise, of ``grls train reranker``."""


def gradient_norm(parameters: Iterable[torch.nn.Parameter]) -> Tensor | None:
    """Length of the whole gradient, a scalar, not finite where a part is not; None: there is none."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients) if gradients else None


def spoiled(weights: Mapping[str, Any]) -> str | None:
    """The name of weights that are not finite; None: all are."""
    for name, value in weights.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return name
    return None


class RefuseNaN(L.Callback):
    """Looks at each loss before the backward pass, and at the gradient before it is used any further.

    A gradient is looked at with the next loss, or before dev is measured or a checkpoint written, so that a
    GPU has work meanwhile. With scaled gradients (float16) an infinite one only skips a step, as it should.

    Args:
        remedy: What to lower or to try, for the error text.
    """

    def __init__(self, remedy: str = GENERATOR):
        self.remedy = remedy
        self._norm: Tensor | None = None
        self._step = 0

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        """Refuse the loss of a step, or the gradient of the one before."""
        self._look(trainer, pl_module, loss=loss)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradient."""
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            self._norm, self._step = gradient_norm(pl_module.parameters()), trainer.global_step + 1

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse the last gradient."""
        self._look(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse the last gradient, and weights that are no numbers, before an earlier file is replaced."""
        own = {name for name, _ in pl_module.named_parameters()}
        weights = {name: value for name, value in checkpoint["state_dict"].items() if name in own}
        self._look(trainer, pl_module, broken=spoiled(weights))

    def _look(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        loss: Tensor | None = None,
        broken: str | None = None,
    ) -> None:
        """Ask all processes.

        Raises:
            ConfigError: On all of them, where one has found something that is not finite.
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
        before = "" if kept is None else f" {kept} is from before it and was left as it is."
        raise ConfigError(f"the training has diverged: {what}.{before} Lower {self.remedy}.")
