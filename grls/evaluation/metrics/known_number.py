"""Set F1 with the known number of gold passages: the score of a system that knows how many to return.

Convention: for a query with n gold passages, the first n distinct passages of its chain or ranking are
returned, and their :mod:`set F1 <grls.evaluation.metrics.set_f1>` is averaged over queries. If there are n of
them, it is their precision and their recall as well, trec_eval's ``Rprec`` (R-precision). A chain that ended
earlier stays short, so of a run that ends by itself this is a lower bound. DONE is no passage: leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.metrics.averages import mean, metric_class
from grls.evaluation.metrics.set_f1 import set_scores


def known_number_f1(retrieved: Sequence[str], gold: Collection[str]) -> float:
    """Set F1 of the first n distinct passages of one query, for n gold passages."""
    relevant = set(gold)
    return set_scores(list(dict.fromkeys(retrieved))[: len(relevant)], relevant).f1


def known_number(retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]]) -> dict[str, float]:
    """Mean set F1 with the known number of gold passages, ``{"f1_known_number": …}``."""
    return {"f1_known_number": mean(known_number_f1(*pair) for pair in zip(retrieved, gold, strict=True))}


KnownNumber = metric_class(known_number, __name__, predictions=["string"], references=["string"])
