"""The loss of a bi-encoder: in-batch negatives without false negatives.

Legend: B examples of a batch, b of them in this process (all, where there is one), n passages an example (the
right one, then hard negatives), C = B n passages of the batch (all right passages in the order of the
examples, then all first negatives, …), G largest number of gold texts of an example, d embedding dimension.

The passages of all processes are negatives of each example, so the loss is that of one process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor
from torch.nn import functional as F

from grls.train.biencoder.groups import embed_in_groups
from grls.train.core.processes import gathered, weighed


def false_negatives(keys: Tensor, gold: Tensor, first: int = 0) -> Tensor:
    """Mask of the passages in the batch that are no negatives of an example, ``[b, C]``.

    These are the gold passages of its query at any hop, copies of its right passage (DONE is the right
    passage of every last hop), and second copies of any passage, so that each text counts once. The right
    passage itself is never masked.

    Args:
        keys: ``[B, n]`` numbers of the passages' texts, the right passage first.
        gold: ``[b, G]`` numbers of the texts that are right for the query.
        first: The place of the first of the b examples among the B.
    """
    every = keys.T.flatten()
    target = keys[first : first + len(gold), :1]
    right = (gold[:, :, None] == every).any(dim=1) | (target == every)
    copies = (every[:, None] == every).tril(diagonal=-1).any(dim=1)
    mask = right | copies
    mask[:, first : first + len(gold)].fill_diagonal_(False)
    return mask


class MaskedRankingLoss(MultipleNegativesRankingLoss):
    """The ranking loss of sentence-transformers, with false negatives left out of each softmax.

    For an example with query q, right passage p and the unmasked passages C of the batch, the loss is
    log(sum over c in C of exp(s q·c)) - s q·p, with the scale s; it is averaged over the examples.

    A row of ``labels`` holds what :func:`false_negatives` needs: the n keys of the example's passages, then
    its G gold keys.
    """

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """The loss of features: of ``b`` queries, then of ``b`` texts for each of the n passages.

        Args:
            sentence_features: What the model reads of each.
            labels: ``[b, n + G]``.
        """
        embeddings = [embed_in_groups(self.model, features) for features in sentence_features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss, a scalar in float32; among several processes ``weighed``.

        Args:
            embeddings: ``[b, d]`` queries, then ``[b, d]`` for each of the n passages.
            labels: ``[b, n + G]``.
        """
        queries, passages = embeddings[0], embeddings[1:]
        similarity: Any = self.similarity_fct
        every, first = gathered(torch.stack(passages, dim=1))
        keys = gathered(labels[:, : len(passages)]).rows
        scores = self.scale * similarity(queries.float(), every.transpose(0, 1).flatten(0, 1).float())
        mask = false_negatives(keys, labels[:, len(passages) :], first)
        scores = scores.masked_fill(mask, float("-inf"))
        mean = F.cross_entropy(scores, first + torch.arange(len(scores), device=scores.device))
        return weighed(mean, len(scores))
