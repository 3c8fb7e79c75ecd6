"""A ranking by hops: its scores, and its end, which are passages that no hop has among its best hits.

A hop shares out its probability among a fixed number of hits. A ranking of more passages than all hops find
goes on with those of a single step. They have no share of that probability. Their scores are in the ratio of
the softmax of the first hop, and scaled so that none is above that of a passage of the hops. No score depends
on how many passages are asked for. The module knows no chains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from grls.data.types import Hit

_CERTAIN = 1e-9
"""Probabilities are certain where all of them together lack no more of their number than this."""


def to_nine_digits(probability: float) -> float:
    """A probability to nine digits: what sums in another order, or of other batches, differ by is no rank."""
    return float(f"{probability:.9g}")


def shares_beyond(temperature: float, hits: Sequence[Hit], shares: Mapping[str, float]) -> list[Hit]:
    """The passages of a single step with scores on the scale of probabilities of the first hop.

    Args:
        temperature: The temperature of the softmax.
        hits: The passages, best first.
        shares: The probabilities of the passages of the first hop.
    """
    best = next((hit for hit in hits if hit.id in shares), None)
    if best is None:
        return []
    top = shares[best.id]
    more = [hit for hit in hits if hit.id not in shares]
    return [Hit(hit.id, top * math.exp(min(hit.score - best.score, 0.0) / temperature)) for hit in more]


def after_hops(mass: Mapping[str, float], beyond: Sequence[Hit], k: int) -> list[Hit]:
    """The k likeliest passages; where the hops find fewer, those of a single step follow.

    Where the probabilities sum up to the number of passages, each of them is 1: every chain holds every
    passage, and only the share of dropped chains makes one of them larger than another.

    Args:
        mass: The probabilities of the passages of all hops, in the order in which they were found. Equal ones
            keep it.
        beyond: The passages of a single step, best first; those of the hops count once.
        k: Largest number of hits.
    """
    certain = math.fsum(mass.values()) >= len(mass) - _CERTAIN
    scores = {name: 1.0 if certain else to_nine_digits(value) for name, value in mass.items()}
    ranked = [Hit(*pair) for pair in sorted(scores.items(), key=lambda pair: -pair[1])[:k]]
    more = [hit for hit in beyond if hit.id not in mass][: k - len(ranked)]
    if not more:
        return ranked
    lowest, first = ranked[-1].score, more[0].score
    factor = lowest / first if first > lowest else 1.0
    falling = list(accumulate((factor * hit.score for hit in more), min, initial=lowest))[1:]
    return ranked + [Hit(hit.id, score) for hit, score in zip(more, falling, strict=True)]
