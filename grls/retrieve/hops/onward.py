"""One more hop? How probable it is, by the scores of a hop, that it finds a gold passage.

Legend: n hits of a hop, T the temperature of their softmax.

Ranked hops share out the probability of a chain among the hits of its next hop. If that hop finds nothing
(no gold passage is left, or its best hit is as good as the others), those shares push passages of earlier
hops down. DONE tells it for retrievers that learned DONE, and only whether a chain is complete. The onward
model works with any retriever: a logistic regression on what a hop shows (:func:`hop_features`) gives the
probability p that the hop finds a gold passage, and the hits share out p in the place of 1. So hops that
find nothing change little, and a query takes as many hops as its scores tell: once the chains hold less than
a tenth of the probability, no further hop is made. ``grls tune`` learns the model from development queries
(:mod:`grls.tune.onward`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grls.models.base import Floats

FEATURES = (
    "log of the number of passages in the chain",
    "score of DONE less that of the best hit",
    "entropy of the hits",
    "score of the best hit less that of the best one of the first hop",
    "log-probability of the last passage among the hits of its hop",
    "log-probability of the chain among the hits of its hops",
)
"""What the model reads of a hop. Scores are divided by T. The second one is 0 where a retriever has no DONE;
a DONE that is not among the best of a hop counts as its last hit, which it is below."""

ENDS_BELOW = 0.1
"""A query whose chains have less probability than this takes no further hop."""

_LEAST, _MOST = math.log(1e-12), 50.0
"""No log-probability is lower, and no difference of scores (divided by T) greater."""


class SeenHop(NamedTuple):
    """What a hop of one chain shows, for learning the model.

    Attributes:
        query: Index of its query.
        features: Its :data:`FEATURES`.
        shares: Passage id -> share among the hits, without DONE.
    """

    query: int
    features: tuple[float, ...]
    shares: dict[str, float]


def hop_features(
    logits: Floats, done: float | None, first: float, among: Sequence[float]
) -> tuple[float, ...]:
    """The :data:`FEATURES` of a hop.

    Args:
        logits: ``[n]`` scores of the hits divided by T; at least one.
        done: The score of DONE divided by T; None: the retriever has no DONE.
        first: The best score of the query's first hop, divided by T.
        among: For each passage of the chain its log-probability among the hits of its hop; at least one.
    """
    log_shares = logits - np.logaddexp.reduce(logits)
    best = float(logits.max())
    return (
        math.log(len(among)),
        0.0 if done is None else _within(done - best),
        float(-(np.exp(log_shares) * log_shares).sum()),
        _within(best - first),
        max(among[-1], _LEAST),
        max(math.fsum(among), _LEAST),
    )


def onward_probability(model: Sequence[float], features: Sequence[float]) -> float:
    """The probability that a hop finds a gold passage, in (0, 1).

    Args:
        model: A weight for each feature, then the bias.
        features: The features of the hop.
    """
    *weights, bias = model
    logit = math.fsum([bias, *(w * x for w, x in zip(weights, features, strict=True))])
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def _within(difference: float) -> float:
    return min(max(difference, -_MOST), _MOST)
