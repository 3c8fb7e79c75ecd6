"""Sequence recall@k: the share of the gold evidence among the first k retrieved passages.

Convention: for one query, (gold passages in the top k) / (all gold passages); then the mean over queries.
This is trec_eval's ``recall_k`` and ir_measures' ``R@k``: a query without retrieved passages, or without gold
passages, scores 0. k counts retrieved passages, so with more than k gold passages recall@k cannot reach 1.
The order of the gold passages does not count. A passage retrieved twice takes two ranks and counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.measures import recall_at
from grls.evaluation.metrics.averages import KS, cutoffs, mean, metric_class


def sequence_recall(
    retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]], ks: Sequence[int] = KS
) -> dict[str, float]:
    """Mean recall at each cut-off, ``{"recall@1": …}``."""
    pairs = list(zip(retrieved, gold, strict=True))
    return {f"recall@{k}": mean(recall_at(ids, relevant, k) for ids, relevant in pairs) for k in cutoffs(ks)}


SequenceRecall = metric_class(sequence_recall, __name__, predictions=["string"], references=["string"])
