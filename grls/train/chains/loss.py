"""The losses of chains: of decisions, of margins, and of rescoring.

Legend: D decisions, A allowed tokens of all of them together, U distinct allowed tokens, d model width,
n passages of all rescored hops together, h rescored hops, c largest number of passages of one hop.

A rescored hop has its right passages, and passages that retrievers propose for it: the best ones of a
bi-encoder or BM25 that are not known to be right (:mod:`grls.train.chains.proposals`). Over these passages
the loss is listwise, as in rerankers that learn from a retriever's mistakes (localized contrastive
estimation, Gao et al. 2021, arXiv 2101.08751). With a(x) the log-odds of :mod:`grls.models.rescore_spec` and
G the right passages,

    loss  =  - mean over x in G of log [ exp a(x) / sum over all y of exp a(y) ].

Where chains learn to end, DONE is one of the passages, and right when no other passage is left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grls.models.head import Head
from grls.train.chains.collate import DecisionTensors, Rescored


def taken_scores(head: Head, hidden: Tensor, decisions: DecisionTensors) -> Tensor:
    """``[A]`` log-probability of each allowed token among the allowed tokens of its decision.

    With a prior, it is the log-probability under the product of model and prior. One matrix product gives the
    logits of all U tokens that any decision allows.

    Args:
        head: The model's output head.
        hidden: ``[D, d]`` inputs of the head.
        decisions: The decisions with their allowed tokens.
    """
    if not len(hidden):
        return hidden.sum(-1)
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    gains = torch.full_like(logits, float("-inf"))
    gains[decisions.owners, columns] = decisions.gains.to(logits.dtype)
    scores = (logits + gains).log_softmax(-1)
    return scores[decisions.owners, columns]


def target_loss(scores: Tensor, decisions: DecisionTensors) -> Tensor:
    """Weighted sum over decisions of the cross-entropy of target and model, from ``scores [A]``."""
    return -(scores * decisions.probabilities * decisions.weights[decisions.owners]).sum()


def margin_loss(scores: Tensor, decisions: DecisionTensors, margin: float) -> Tensor:
    """Sum over pairs of right and wrong passage of ``max(0, margin - log P(right) + log P(wrong))``.

    The margin-based loss of learning to rank in generative retrieval (LTRGR, arXiv 2306.15222), with the
    ``renormalized`` log-probability as the score.

    Args:
        scores: ``[A]`` log-probability of each allowed token.
        decisions: The pairs, and the tokens that each path took.
        margin: The margin in nats.
    """
    passages = scores.new_zeros(decisions.paths).index_add(0, decisions.takers, scores[decisions.taken])
    gap: Tensor = passages[decisions.right] - passages[decisions.wrong]
    return (margin - gap).clamp(min=0).sum()


def rescore_loss(odds: Tensor, rescored: Rescored) -> Tensor:
    """Mean over hops of the listwise loss above, a scalar; 0 where nothing was rescored.

    Args:
        odds: ``[n]`` log-odds of the passages.
        rescored: The passages.
    """
    if not len(odds):
        return odds.sum()
    hops, most = rescored.hop_count, int(rescored.within.max()) + 1
    table = odds.new_full((hops, most), float("-inf"))
    table[rescored.hops, rescored.within] = odds
    logs = table.log_softmax(-1)[rescored.hops, rescored.within]
    count = odds.new_zeros(hops).index_add(0, rescored.hops, rescored.right.to(odds.dtype))
    return -(logs * rescored.right / count[rescored.hops]).sum() / hops
