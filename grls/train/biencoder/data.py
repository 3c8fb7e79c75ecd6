"""The batches of a bi-encoder: features of texts, and labels of their keys.

Legend: b examples of a batch, n passages of an example, G largest number of gold texts of an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.examples import Pair
from grls.train.core.datamodule import EncoderData


class PairBatch(NamedTuple):
    """Pairs as tensors; see :class:`grls.train.biencoder.loss.MaskedRankingLoss`.

    Attributes:
        features: Tokens of the queries, and of each of the n passages.
        labels: ``[b, n + G]``.
        teacher: ``[b, n]`` scores of the passages; None without a teacher.
    """

    features: list[dict[str, Any]]
    labels: Tensor
    teacher: Tensor | None


class BiEncoderData(EncoderData):
    """The pairs of a bi-encoder in batches of like length; they are drawn anew each epoch."""

    encoder: BiEncoderModel

    def val_dataloader(self) -> DataLoader[Any]:
        """One batch: the evaluation reads dev itself."""
        return DataLoader([0])  # type: ignore[arg-type]

    def collator(self, pairs: Sequence[Pair]) -> PairBatch:
        texts = zip(*(pair.passages for pair in pairs), strict=True)
        features = [self.encoder.features([pair.query for pair in pairs], "query")]
        features += [self.encoder.features(passages, "passage") for passages in texts]
        labels = torch.tensor([[*pair.keys, *pair.gold] for pair in pairs])
        teacher = torch.tensor([pair.scores for pair in pairs]) if pairs[0].scores else None
        return PairBatch(features, labels, teacher)
