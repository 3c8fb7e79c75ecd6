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
        margin: A right passage is to have a log-probability (nats) higher by so much than a wrong one that
            the search has found in its place (see ``mine`` of the data); 0: no such loss.
        margin_weight: Of that loss.
        freeze_embeddings: Leave the word embeddings as they are, and an output head that is tied to them.
        kwargs: The options of :class:`grls.train.module.GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adamw",
        loss: Loss = "allowed",
        margin: float = 0.0,
        margin_weight: float = 1.0,
        freeze_embeddings: bool = True,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, loss=loss, **kwargs)
        self.margin = margin
        self.margin_weight = margin_weight
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
        scores = taken_scores(self._head, hidden, batch.decisions)
        loss = target_loss(scores, batch.decisions)
        if self.margin:
            loss = loss + self.margin_weight * margin_loss(scores, batch.decisions, self.margin)
        return loss / len(batch.labels)


def taken_scores(head: Head, hidden: Tensor, decisions: Weighed) -> Tensor:
    """``[A]`` log-probability of each allowed token at its decision, over what is allowed there.

    One matrix product gives the logits of all U tokens that any decision allows.

    Args:
        head: The model's output head.
        hidden: ``[D, d]`` what reaches it.
        decisions: What is allowed.
    """
    if not len(hidden):
        return hidden.sum(-1)
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    allowed = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    allowed[decisions.owners, columns] = True
    scores = logits.masked_fill(~allowed, float("-inf")).log_softmax(-1)
    return scores[decisions.owners, columns]


def target_loss(scores: Tensor, decisions: Weighed) -> Tensor:
    """Weighted sum over decisions of the cross-entropy of target and model, from ``scores [A]``."""
    return -(scores * decisions.probabilities * decisions.weights[decisions.owners]).sum()


def margin_loss(scores: Tensor, decisions: Weighed, margin: float) -> Tensor:
    """Sum over pairs of right and wrong passage of ``max(0, margin - log P(right) + log P(wrong))``.

    The margin-based loss of learning to rank in generative retrieval (LTRGR, arXiv 2306.15222), with the
    ``renormalized`` log-probability as the score.

    Args:
        scores: ``[A]``.
        decisions: The pairs, and what each path took.
        margin: In nats.
    """
    passages = scores.new_zeros(decisions.paths).index_add(0, decisions.takers, scores[decisions.taken])
    gap: Tensor = passages[decisions.right] - passages[decisions.wrong]
    return (margin - gap).clamp(min=0).sum()
