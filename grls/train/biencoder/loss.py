"""The loss of a bi-encoder: in-batch negatives without false ones.

Legend: B examples of a batch, n passages an example (the right one, then hard negatives), C = B n passages of
the batch (all right ones in the order of the examples, then all first negatives, …), G gold texts an example
at most, d embedding dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor
from torch.nn import functional as F


def false_negatives(keys: Tensor, gold: Tensor) -> Tensor:
    """Which passages of the batch must not count as wrong for an example, ``[B, C]``.

    Gold passages of its query at any hop, copies of its own right passage (DONE is that of every last hop),
    and copies of a passage that counts already, lest a frequent one weigh more than once. Its own right
    passage itself is never among them.

    Args:
        keys: ``[B, n]`` numbers of the passages' texts, the right one first.
        gold: ``[B, G]`` numbers of the texts that are right for the query.
    """
    every = keys.T.flatten()
    own = keys[:, :1]
    right = (gold[:, :, None] == every).any(dim=1) | (own == every)
    copies = (every[:, None] == every).tril(diagonal=-1).any(dim=1)
    mask = right | copies
    mask[:, : len(keys)].fill_diagonal_(False)
    return mask


class MaskedRankingLoss(MultipleNegativesRankingLoss):
    """sentence-transformers' ranking loss, each example's softmax taken without its false negatives.

    For an example with query q, right passage p and the passages C of the batch that are not masked, the loss
    is log(sum over c in C of exp(s q·c)) - s q·p, with the scale s; it is averaged over the examples.

    A row of ``labels`` holds what :func:`false_negatives` needs: the n keys of the example's passages, then
    its G gold keys.
    """

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss, a scalar in float32.

        Args:
            embeddings: ``[B, d]`` queries, then ``[B, d]`` for each of the n passages.
            labels: ``[B, n + G]``.
        """
        queries, passages = embeddings[0], embeddings[1:]
        similarity: Any = self.similarity_fct
        scores = self.scale * similarity(queries.float(), torch.cat(passages).float())
        mask = false_negatives(labels[:, : len(passages)], labels[:, len(passages) :])
        scores = scores.masked_fill(mask, float("-inf"))
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))
