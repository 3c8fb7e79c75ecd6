"""Embeds the texts of a batch in groups of like length on a CPU, where time follows the padding.

A batch mixes lengths: a query without evidence beside one with three passages, DONE beside a paragraph.
Padded to the longest, half of such a batch is padding. Groups have little of it, and smaller tensors, which
the C library keeps for the next step. The embeddings are those of the whole batch, so the loss and its
negatives stay (with dropout: another draw).

Legend: b texts, L tokens of the longest one, d embedding dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from grls.train.core.processes import processes

GROUP = 8
"""Texts of a group."""


def embed_in_groups(model: nn.Module, features: Mapping[str, Any], size: int = GROUP) -> Tensor:
    """The embeddings ``[b, d]`` of texts, in their order.

    Among several processes a batch stays whole: each pass may wait for the other processes, which would have
    to make as many. So it does on a GPU, which one large pass keeps busy, and where a tokenizer pads on the
    left, since positions may be counted from there.

    Args:
        model: A model of sentence-transformers.
        features: What the model reads of the texts, ``attention_mask [b, L]`` among it.
        size: Texts of a group.
    """
    mask = features.get("attention_mask")
    if not isinstance(mask, Tensor) or len(mask) <= size or processes() > 1 or not _cuttable(mask):
        return _embedded(model, dict(features))
    order = torch.argsort(mask.sum(dim=1), stable=True)
    parts = [_embedded(model, _part(features, mask, rows)) for rows in order.split(size)]
    return torch.cat(parts)[torch.argsort(order)]


def _cuttable(mask: Tensor) -> bool:
    """Whether a batch is on a CPU and is padded on the right."""
    return mask.device.type == "cpu" and mask.ndim == 2 and bool(mask[:, 0].all())


def _part(features: Mapping[str, Any], mask: Tensor, rows: Tensor) -> dict[str, Any]:
    """The features of some texts, cut to the longest of them."""
    longest = int(mask[rows].sum(dim=1).max())

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.shape[:1] != mask.shape[:1]:
            return value
        chosen = value[rows]
        return chosen[:, :longest] if value.shape[:2] == mask.shape else chosen

    return {name: cut(value) for name, value in features.items()}


def _embedded(model: nn.Module, features: dict[str, Any]) -> Tensor:
    made: Tensor = model(features)["sentence_embedding"]
    return made
