"""The end of a ranking by hops: passages that no hop has among its best hits.

A hop shares out its probability among a fixed number of hits. A ranking of more passages than all hops find
goes on with those of a single step. They have no share of that probability. Their scores are in the ratio of
the softmax of the first hop, and scaled so that none is above that of a passage of the hops. No score depends
on how many passages are asked for. The module knows no chains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from grls.data.types import Hit


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

    Args:
        mass: The probabilities of the passages of all hops.
        beyond: The passages of a single step, best first; those of the hops count once.
        k: Largest number of hits.
    """
    ranked = [Hit(*pair) for pair in sorted(mass.items(), key=lambda pair: -pair[1])[:k]]
    more = [hit for hit in beyond if hit.id not in mass][: k - len(ranked)]
    if not more:
        return ranked
    lowest, first = ranked[-1].score, more[0].score
    factor = lowest / first if first > lowest else 1.0
    return ranked + [Hit(hit.id, factor * hit.score) for hit in more]
