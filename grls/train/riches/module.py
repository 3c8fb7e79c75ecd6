"""The LightningModule of interlaced retrieval: any language model, causal or encoder-decoder."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from grls.models.base import check_positions
from grls.models.head import Head
from grls.models.load.build import GeneratorSpec
from grls.train.core.collate import IGNORED, Batch, Choices
from grls.train.core.module import GeneratorModule
from grls.train.core.processes import weighed


class Interlace(GeneratorModule):
    """Learns to answer with quotes (arXiv 2407.00361): thoughts, quoted keys, answer.

    The loss is taken over the target, not over the prompt. ``full``: over the vocabulary at all positions;
    ``allowed``: within keys, over the tokens that the decoder allows there, which fits ``renormalized``
    scores.

    Args:
        generator: The model to start from.
        optimizer: ``adamw``, or ``adafactor`` with a fixed learning rate.
        learning_rate: Peak learning rate.
        freeze_embeddings: Do not train the word embeddings and an output head that is tied to them.
        kwargs: The options of :class:`grls.train.core.module.GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adamw",
        learning_rate: float = 1e-4,
        freeze_embeddings: bool = False,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, learning_rate=learning_rate, **kwargs)
        if freeze_embeddings:
            self.model.get_input_embeddings().requires_grad_(False)

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.refuse_other_logits()

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar in float32: the mean over labels and choices within keys."""
        # A causal model's labels are the tokens it reads, so they need no positions of their own.
        written = 0 if batch.decoder_input_ids is None else batch.labels.shape[1]
        check_positions(self.model, batch.input_ids.shape[1], written)
        arguments = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "use_cache": False}
        if batch.decoder_input_ids is not None:
            arguments["decoder_input_ids"] = batch.decoder_input_ids
        with self._head.catch() as caught:
            self.model(**arguments)
        mean = interlaced_loss(self._head, caught[0], batch.labels, batch.choices)
        return weighed(mean, labelled(batch.labels, batch.choices))


def interlaced_loss(head: Head, hidden: Tensor, labels: Tensor, choices: Choices | None) -> Tensor:
    """Cross-entropy over the vocabulary where there is a label, and over the allowed tokens within keys.

    The head is applied only at these positions, since at V = 49,152 it is most of a small model's work.
    The mean is over these positions; a position within a key with one allowed token is left out.

    ``hidden [b, t, d]`` are inputs of the head, ``labels [b, t]``. ``choices``: the allowed tokens of P
    positions within keys; None where ``labels`` holds these positions.
    """
    rows, flat_labels = hidden.flatten(0, 1), labels.flatten()
    free = flat_labels != IGNORED
    total = F.cross_entropy(head.all(rows[free]), flat_labels[free], reduction="sum")
    if choices is not None and len(choices.labels):
        union = choices.tokens.unique()
        allowed = torch.zeros((len(choices.labels), len(union)), dtype=torch.bool, device=rows.device)
        allowed[choices.positions, torch.searchsorted(union, choices.tokens)] = True
        logits = head.some(rows[choices.labels], union).masked_fill(~allowed, float("-inf"))
        targets = torch.searchsorted(union, choices.tokens[choices.targets])
        total = total + F.cross_entropy(logits, targets, reduction="sum")
    return total / labelled(labels, choices)


def labelled(labels: Tensor, choices: Choices | None) -> int:
    """The number of positions that the mean is over."""
    return int((labels != IGNORED).sum()) + (0 if choices is None else len(choices.labels))
