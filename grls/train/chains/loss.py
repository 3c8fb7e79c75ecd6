"""The losses of chains: of the tokens that are decided, of margins, and of passages that are rescored.

Legend: D decisions, A allowed tokens of all of them together, U distinct ones among them, d model width,
n passages read for all rescored hops together, h rescored hops, c the most of one hop.

A hop that is rescored has its right passages, and others that retrievers propose for it: the best ones of a
bi-encoder or of BM25 that are not known to be right (:mod:`grls.train.chains.proposals`). Among them the loss
is listwise, as that of rerankers that learn from a retriever's mistakes (localized contrastive estimation,
Gao et al. 2021, arXiv 2101.08751): with a(x) the log-odds of :mod:`grls.models.rescore_spec` and G the right
ones,

    loss  =  - mean over x in G of log [ exp a(x) / sum over all y of exp a(y) ].

DONE is among them where chains learn to end, right when nothing else is left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grls.models.head import Head
from grls.train.chains.collate import DecisionTensors, Rescored


def taken_scores(head: Head, hidden: Tensor, decisions: DecisionTensors) -> Tensor:
    """``[A]`` log-probability of each allowed token at its decision, over what is allowed there.

    With a prior, that of the product of model and prior.

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
        scores: ``[A]``.
        decisions: The pairs, and what each path took.
        margin: In nats.
    """
    passages = scores.new_zeros(decisions.paths).index_add(0, decisions.takers, scores[decisions.taken])
    gap: Tensor = passages[decisions.right] - passages[decisions.wrong]
    return (margin - gap).clamp(min=0).sum()


def rescore_loss(odds: Tensor, rescored: Rescored) -> Tensor:
    """Mean over hops of the listwise loss above, a scalar; 0 where nothing was rescored.

    Args:
        odds: ``[n]`` log-odds.
        rescored: What they are of.
    """
    if not len(odds):
        return odds.sum()
    hops, most = int(rescored.hops[-1]) + 1, int(rescored.within.max()) + 1
    table = odds.new_full((hops, most), float("-inf"))
    table[rescored.hops, rescored.within] = odds
    logs = table.log_softmax(-1)[rescored.hops, rescored.within]
    count = odds.new_zeros(hops).index_add(0, rescored.hops, rescored.right.to(odds.dtype))
    return -(logs * rescored.right / count[rescored.hops]).sum() / hops
