"""The loss of interlaced retrieval.

Legend: b examples, t label positions, d model width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from grls.models.head import Head
from grls.train.core.collate import IGNORED, Choices


def interlaced_loss(
    head: Head, hidden: Tensor, labels: Tensor, choices: Choices | None, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy over the vocabulary where there is a label, and over the allowed tokens within keys.

    The head is applied only at these positions, since at V = 49,152 it is most of a small model's work. The
    mean is over these positions; a position within a key with one allowed token is left out.

    Args:
        head: The model's output head.
        hidden: ``[b, t, d]`` inputs of the head.
        labels: ``[b, t]``.
        choices: The allowed tokens of P positions within keys; None where ``labels`` holds these positions.
        label_smoothing: Label smoothing of the loss over the vocabulary.
    """
    rows, wanted = hidden.flatten(0, 1), labels.flatten()
    free = wanted != IGNORED
    total = F.cross_entropy(
        head.all(rows[free]), wanted[free], reduction="sum", label_smoothing=label_smoothing
    )  # fmt: skip
    if choices is not None and len(choices.places):
        union = choices.tokens.unique()
        allowed = torch.zeros((len(choices.places), len(union)), dtype=torch.bool, device=rows.device)
        allowed[choices.positions, torch.searchsorted(union, choices.tokens)] = True
        logits = head.some(rows[choices.places], union).masked_fill(~allowed, float("-inf"))
        targets = torch.searchsorted(union, choices.tokens[choices.targets])
        total = total + F.cross_entropy(logits, targets, reduction="sum")
    return total / labelled(labels, choices)


def labelled(labels: Tensor, choices: Choices | None) -> int:
    """The number of positions that the mean is over."""
    return int((labels != IGNORED).sum()) + (0 if choices is None else len(choices.places))
