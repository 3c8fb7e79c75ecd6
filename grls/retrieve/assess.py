"""Ranking by what the generator says of passages once it has written them, beside how likely it was to.

Legend: Q queries, C candidates of a query.

The search gives the C best passages of a query scores s(x); the generator reads each to its end and gives it
log-odds a(x) (:mod:`grls.assess`). With w the weight,

    score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

so candidates keep together the probability that they had. What was not assessed stands behind them, its score
no higher than theirs, so that a ranking is the same however many passages are asked for. In chains this holds
at every hop: scores stay log-probabilities, DONE is assessed as a passage is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grls.decode import Found
from grls.models.base import Floats


def beside_assessment(found: Sequence[Found], odds: Floats, weight: float) -> list[Found]:
    """Passages ranked by score and assessment.

    Args:
        found: What the search found for a query, best first.
        odds: ``[C]`` log-odds (nats) of the first C of them.
        weight: w.

    Returns:
        All of them, best first.
    """
    count = len(odds)
    if not count:
        return list(found)
    own = np.array([some.score for some in found[:count]])
    both = own + weight * odds
    both += np.logaddexp.reduce(own) - np.logaddexp.reduce(both)
    ranked = [Found(some.passage, float(score)) for some, score in zip(found, both, strict=False)]
    ranked.sort(key=lambda some: -some.score)
    return ranked + [some._replace(score=min(some.score, ranked[-1].score)) for some in found[count:]]
