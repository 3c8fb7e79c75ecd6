"""Complete recall@k: the share of queries with all gold passages among the first k retrieved.

Convention: a query scores 1 if its gold passages are a subset of the top k, else 0; then the mean over
queries. For HotpotQA's two gold passages this is multi-hop dense retrieval's passage exact match and path
recall@k (arXiv 2009.12756, tables 2 and 3), elsewhere "all evidence found". It is at most
:mod:`sequence recall <grls.evaluation.metrics.sequence_recall>`, and equal if every query has one gold
passage. A query with more than k gold passages, or without gold passages, scores 0. The order does not count:
:mod:`path match <grls.evaluation.metrics.path_match>` measures it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.metrics.averages import KS, cutoffs, mean, metric_class


def complete_recall(
    retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]], ks: Sequence[int] = KS
) -> dict[str, float]:
    """Share of complete queries at each cut-off, ``{"complete_recall@1": …}``."""
    pairs = list(zip(retrieved, gold, strict=True))
    return {
        f"complete_recall@{k}": mean(bool(g) and set(g) <= set(ids[:k]) for ids, g in pairs)
        for k in cutoffs(ks)
    }


CompleteRecall = metric_class(complete_recall, __name__, predictions=["string"], references=["string"])
