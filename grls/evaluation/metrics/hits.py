"""Hits@k: the share of queries with a gold passage among their first k.

Convention: one gold passage is enough; a query without a hit, or without gold passages, scores 0 and is not
skipped. A passage that is listed twice takes two ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from grls.evaluation.metrics.averages import KS, cutoffs, mean, metric_class


def hits(
    retrieved: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], ks: Sequence[int] = KS
) -> dict[str, float]:
    """``{"hits@k": …}`` for each cut-off."""
    pairs = [(list(ids), set(relevant)) for ids, relevant in zip(retrieved, gold, strict=True)]
    return {
        f"hits@{k}": mean(any(i in relevant for i in ids[:k]) for ids, relevant in pairs) for k in cutoffs(ks)
    }


Hits = metric_class(hits, __name__, predictions=["string"], references=["string"])
