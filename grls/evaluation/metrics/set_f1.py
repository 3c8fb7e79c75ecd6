"""Precision, recall and F1 of a retrieved chain, taken as a set, against the gold set.

Convention: for one query, with R the distinct passages of its chain and G its gold passages,
precision = |R ∩ G| / |R|, recall = |R ∩ G| / |G|, F1 = 2|R ∩ G| / (|R| + |G|); then each is averaged over
queries, so the mean F1 is not the F1 of the means. These are trec_eval's ``set_P``, ``set_recall``,
``set_F`` and ir_measures' ``SetP``, ``SetR``, ``SetF``: a division by 0 gives 0, so an empty chain scores 0,
and so does a query without gold passages, even if its chain is empty as well. DONE is no passage: leave it
out of R.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from grls.evaluation.metrics.averages import mean, metric_class


class SetScores(NamedTuple):
    """Precision, recall and F1 of one query, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


def set_scores(retrieved: Collection[str], gold: Collection[str]) -> SetScores:
    """The scores of one query."""
    distinct, relevant = set(retrieved), set(gold)
    common = len(distinct & relevant)
    if not common:
        return SetScores(0.0, 0.0, 0.0)
    return SetScores(
        common / len(distinct), common / len(relevant), 2 * common / (len(distinct) + len(relevant))
    )


def set_f1(retrieved: Sequence[Collection[str]], gold: Sequence[Collection[str]]) -> dict[str, float]:
    """Mean set precision, recall and F1, ``{"precision": …, "recall": …, "f1": …}``."""
    scores = [set_scores(*pair) for pair in zip(retrieved, gold, strict=True)]
    return {
        "precision": mean(s.precision for s in scores),
        "recall": mean(s.recall for s in scores),
        "f1": mean(s.f1 for s in scores),
    }


SetF1 = metric_class(set_f1, __name__, predictions=["string"], references=["string"])
