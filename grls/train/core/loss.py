"""The loss over the tokens that the constraint index allows.

Legend: b examples, t target positions, P positions after the first that have a choice, U allowed tokens of
all positions together, d model width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from grls.models.head import Head
from grls.train.core.collate import Choices


def allowed_loss(head: Head, hidden: Tensor, labels: Tensor, choices: Choices) -> Tensor:
    """Cross-entropy over the allowed tokens, averaged over positions that have a choice.

    For a position with allowed tokens C and target y the loss is
    log(sum over c in C of exp(z_c)) - z_y, with z the model's logits: the negative logarithm of the
    ``renormalized`` probability of y. One matrix product gives the logits of all U tokens that any position
    allows, and a mask removes the others. Its backward pass is a matrix product too; gathering single logits
    would need a scatter.

    Args:
        head: The model's output head.
        hidden: ``[b, t, d]`` input of the head.
        labels: ``[b, t]``.
        choices: The allowed tokens; P positions after the first.
    """
    examples = len(labels)
    rows = torch.cat((hidden[:, 0], hidden.flatten(0, 1)[choices.places]))
    targets = torch.cat((labels[:, 0], choices.tokens[choices.targets]))
    union = torch.cat((choices.first, choices.tokens)).unique()
    allowed = torch.zeros((len(rows), len(union)), dtype=torch.bool, device=rows.device)
    allowed[:examples, torch.searchsorted(union, choices.first)] = True
    allowed[examples + choices.positions, torch.searchsorted(union, choices.tokens)] = True
    logits = head.some(rows, union).masked_fill(~allowed, float("-inf"))
    return F.cross_entropy(logits, torch.searchsorted(union, targets))
