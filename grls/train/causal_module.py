"""The LightningModule of causal language models that retrieve: the loss over trees of tokens.

Legend: b chains, t nodes of a tree, D decisions, A allowed tokens of all of them together, U distinct ones
among them, d model width.

It holds no index: what is allowed, and what is right, comes with the batch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from grls.errors import ConfigError
from grls.models.build import GeneratorSpec
from grls.models.generator import check_positions
from grls.models.head import Head
from grls.train.causal_collate import Weighed
from grls.train.module import GeneratorModule, Loss


class RetrieveCausal(GeneratorModule):
    """Query and evidence -> next passage, with all hops of a query in one pass.

    The loss of a hop is the cross-entropy of its target (:mod:`grls.train.targets`) and the model's
    ``renormalized`` distribution over passages; the mean is over hops.

    Args:
        generator: The model to start from.
        optimizer: As in :class:`grls.train.module.GeneratorModule`.
        loss: ``allowed`` is the only one.
        freeze_embeddings: Leave the word embeddings as they are, and an output head that is tied to them.
        kwargs: The options of :class:`grls.train.module.GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adamw",
        loss: Loss = "allowed",
        freeze_embeddings: bool = True,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, loss=loss, **kwargs)
        if freeze_embeddings:
            for parameter in self.model.get_input_embeddings().parameters():
                parameter.requires_grad = False

    def setup(self, stage: str) -> None:
        """Refuse what cannot work; in the constructor, jsonargparse would bury our error in one of its own.

        Raises:
            ConfigError: The model is no causal one with a linear head, or the loss is not ``allowed``.
        """
        if self.model.config.is_encoder_decoder or not self._head.linear:
            raise ConfigError(
                f"{type(self.model).__name__} is no causal language model with a linear head; train it with "
                "grls.train.module.Retrieve."
            )
        if self.loss != "allowed":
            raise ConfigError("trees of tokens are trained with loss `allowed`.")

    def batch_loss(self, batch: Any) -> Tensor:
        """The loss of a batch of chains, a scalar in float32.

        Raises:
            ConfigError: The model has fewer positions than the longest path.
        """
        trees = batch.trees
        check_positions(self.model, int(trees.position_ids.max()) + 1, 0)
        with self._head.catch() as caught:
            self.model(
                input_ids=trees.input_ids,
                position_ids=trees.position_ids,
                attention_mask=trees.bias(self.model.dtype),
                use_cache=False,
            )
        hidden = caught[0].flatten(0, 1)[batch.decisions.places]
        return decision_loss(self._head, hidden, batch.decisions) / len(batch.labels)


def decision_loss(head: Head, hidden: Tensor, decisions: Weighed) -> Tensor:
    """Weighted sum over decisions of the cross-entropy of target and model over what is allowed.

    Args:
        head: The model's output head.
        hidden: ``[D, d]`` what reaches it.
        decisions: What is allowed, and what is right.
    """
    if not len(hidden):
        return hidden.sum()
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    allowed = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    allowed[decisions.owners, columns] = True
    scores = logits.masked_fill(~allowed, float("-inf")).log_softmax(-1)
    values = scores[decisions.owners, columns] * decisions.probabilities
    return -(values * decisions.weights[decisions.owners]).sum()
