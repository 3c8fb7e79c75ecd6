"""Rescoring by the generator: it reads the best passages to their end and ranks them anew.

Legend: Q queries, C candidates of a query.

The search gives the C best passages of a query scores s(x). The generator reads each to its end and gives it
log-odds a(x) (:mod:`grls.models.rescore_spec`). With w the weight,

    score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

so the total probability of the candidates does not change. Other passages follow, with scores no higher than
those of the candidates, so that a ranking does not depend on the number of hits. In chains this holds at
every hop: scores stay log-probabilities, and DONE is rescored like a passage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grls.decode import ScoredPassage
from grls.models.base import Floats


def rescored(ranking: Sequence[ScoredPassage], odds: Floats, weight: float) -> list[ScoredPassage]:
    """Rank passages by score and log-odds.

    Args:
        ranking: The passages of a query by the search, best first.
        odds: ``[C]`` log-odds (nats) of the first C passages.
        weight: The weight w.

    Returns:
        All passages, best first.
    """
    count = len(odds)
    if not count:
        return list(ranking)
    scores = np.array([one.score for one in ranking[:count]])
    sums = scores + weight * odds
    sums += np.logaddexp.reduce(scores) - np.logaddexp.reduce(sums)
    again = [ScoredPassage(one.passage, float(score)) for one, score in zip(ranking, sums, strict=False)]
    again.sort(key=lambda one: -one.score)
    return again + [one._replace(score=min(one.score, again[-1].score)) for one in ranking[count:]]
