"""Losses that order candidates: the right passages of a hop above wrong ones.

Legend: C candidates of h hops, S passages of other queries, T tokens of all of them, G right and W wrong
candidates of a hop.

The score s(x) of a candidate is its log-probability after the hop's input q (nats): the sum over its tokens,
among those that the index allows (loss ``allowed``), or among the vocabulary (``full``). Of a candidate with
several sequences, such as spans, it is the mean. The papers take the vocabulary. The stage ``chains`` takes
``allowed``, for it is what ``renormalized`` search ranks by: among the vocabulary, a wrong passage can also
lose to texts that no passage has. r(x) = s(x) - s_0(x), with s_0 of the model before the first step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

from grls.train.options import Ranking

REFERRED = ("dpo", "kto")
"""Losses that compare with the model before the first step."""


class Ranked(NamedTuple):
    """Candidates as tensors.

    Attributes:
        hops: ``[C]`` the hop of each candidate, 0 to h - 1, ascending.
        right: ``[C]`` whether it is right.
        numbers: ``[C + S]`` its number among all candidates of the training, then those of S passages of
            other queries.
        tokens: ``[T]`` index of each token's log-probability.
        owners: ``[T]`` the candidate of each token, 0 to C + S - 1.
        shares: ``[T]`` one over the number of its sequences.
    """

    hops: Tensor
    right: Tensor
    numbers: Tensor
    tokens: Tensor
    owners: Tensor
    shares: Tensor

    @property
    def hop_count(self) -> int:
        return int(self.hops[-1]) + 1 if len(self.hops) else 0

    def scores(self, log_probabilities: Tensor) -> Tensor:
        """``[C + S]`` s(x) from the log-probabilities of tokens."""
        values = log_probabilities[self.tokens] * self.shares
        return values.new_zeros(len(self.numbers)).index_add(0, self.owners, values)


def ranking_loss(options: Ranking, scores: Tensor, reference: Tensor, ranked: Ranked) -> Tensor:
    """The loss that ``options`` name: a scalar, 0 where no hop has candidates.

    ``scores`` and ``reference`` are s and s_0, ``[C + S]``.
    """
    hops, right = ranked.hops, ranked.right
    own, ratios = scores[: len(hops)], scores - reference
    if options.loss == "listwise":
        return listwise_loss(own, hops, right)
    if options.loss == "margin":
        return margin_loss(own, hops, right, options.margin)
    gains, others = ratios[: len(hops)], ratios[len(hops) :]
    if options.loss == "dpo":
        return dpo_loss(gains, hops, right, options.beta)
    return kto_loss(gains, others, hops, right, options.beta, options.right_weight)


def dpo_loss(ratios: Tensor, hops: Tensor, right: Tensor, beta: float) -> Tensor:
    """Direct preference optimization, mean over hops (``ratios [C]`` are r).

        loss  =  - mean over x in G, y in W of log sigmoid(beta (r(x) - r(y)))

    Equation 7 of Rafailov et al. 2023 (arXiv 2305.18290). DDRO (arXiv 2504.05181) takes one pair a query:
    the right passage, and one of BM25.
    """
    winners, losers = _pairs(hops, right)
    return _mean(-logsigmoid(beta * (ratios[winners] - ratios[losers])), hops[winners])


def kto_loss(
    ratios: Tensor, others: Tensor, hops: Tensor, right: Tensor, beta: float, weight: float
) -> Tensor:
    """Kahneman-Tversky optimization, mean over hops (``ratios [C]`` are r).

        z  =  max(0, mean of r over passages of other queries), without a gradient
        loss  =  mean over x in G and W of lambda (1 - sigmoid(beta (r(x) - z)))  of a right x,
                                                  1 - sigmoid(beta (z - r(x)))   of a wrong x

    Ethayarajh et al. 2024 (arXiv 2402.01306), section 4.1. ``others [S]`` are r of the other passages, one a
    hop, where the paper takes one a candidate; ``weight`` is lambda, its lambda_D by lambda_U. ThinkGR (arXiv
    2605.22358) labels whole chains by what they retrieve, and here each passage is labelled.
    """
    zero = others.detach().mean().clamp(min=0) if len(others) else ratios.new_zeros(())
    gains = torch.sigmoid(beta * (ratios - zero))
    return _mean(torch.where(right, weight * (1 - gains), gains), hops)


def margin_loss(scores: Tensor, hops: Tensor, right: Tensor, margin: float) -> Tensor:
    """Hinge loss of pairs, mean over hops.

        loss  =  mean over x in G, y in W of max(0, margin - s(x) + s(y))

    LTRGR (Li et al. 2023, arXiv 2306.15222) takes two pairs of a query (the best ones and a random one) and
    adds the cross-entropy, as ``cross_entropy`` of the options does. Its s is a sum over n-grams, so its
    margin of 500 is none of nats.
    """
    winners, losers = _pairs(hops, right)
    return _mean(relu(margin - scores[winners] + scores[losers]), hops[winners])


def listwise_loss(scores: Tensor, hops: Tensor, right: Tensor) -> Tensor:
    """Cross-entropy of the right candidates among all candidates of the hop, mean over hops.

        loss  =  - mean over x in G of log [ exp s(x) / sum over y in G and W of exp s(y) ]

    ListNet's top-one probability (Cao et al. 2007), as rerankers that learn from a retriever's mistakes take
    it: localized contrastive estimation (Gao et al. 2021, arXiv 2101.08751).
    """
    apart = hops[:, None] != hops[None]
    sums = scores.expand(len(hops), -1).masked_fill(apart, float("-inf")).logsumexp(-1)
    return _mean((sums - scores)[right], hops[right])


def _pairs(hops: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Every right candidate with every wrong one of its hop."""
    same = hops[:, None] == hops[None]
    winners, losers = (same & right[:, None] & ~right[None]).nonzero(as_tuple=True)
    return winners, losers


def _mean(values: Tensor, hops: Tensor) -> Tensor:
    """The mean over hops of the mean over their values; 0 of none."""
    counts = hops.bincount().to(values.dtype)
    return (values / counts[hops]).sum() / max(len(counts), 1)
