"""The loss of a reranker (arXiv 2302.00083, equation 9).

Legend: C candidates of a prefix, f the reranker.

For a prefix x with candidates d_1 .. d_C and the likelihood p(y | [d_i; x]) of the stride y that follows,

    loss = -log sum_i p_rank(d_i | x) p(y | [d_i; x]),    p_rank(d_i | x) = softmax_i f(x, d_i):

the likelihood of the text if the document were drawn by the reranker. The language model is not needed: its
likelihoods are in the examples.
"""

from __future__ import annotations

from torch import Tensor


def rerank_loss(values: Tensor, scores: Tensor) -> Tensor:
    """Equation 9 for one prefix.

    Args:
        values: ``[C]`` the reranker's logits f.
        scores: ``[C]`` log-probability (nats) of the stride after each candidate.
    """
    return -(values.log_softmax(-1) + scores.to(values.device)).logsumexp(-1)


def choice_gain(values: Tensor, scores: Tensor) -> Tensor:
    """Gain (nats a stride) of the reranker's choice over the retriever's choice, the first candidate.

    The arguments are those of :func:`rerank_loss`.
    """
    return scores[int(values.argmax())] - scores[0]
