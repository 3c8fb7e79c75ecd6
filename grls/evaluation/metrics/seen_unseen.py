"""Sequence recall@k, separately for gold passages that are gold in training (seen) and for unseen ones.

Convention: a gold passage is *seen* if it is gold of at least one training query (memorising it does not
count). For one query, seen recall@k is (seen gold passages in the top k) / (its seen gold passages), and
unseen recall@k is defined in the same way; each is averaged over the queries that have a gold passage of that
kind. So the two means rest on different sets of queries. The result holds the sizes of these sets, and the
number of queries with unseen gold passages only (their share of all queries is the unseen rate of arXiv
2204.13596, table 1). If no query has a gold passage of a kind, its recall is None. Ranks count in the whole
list: a seen passage above an unseen one takes a rank.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.measures import recall_at
from grls.evaluation.metrics.averages import KS, cutoffs, mean, metric_class


def seen_unseen(
    retrieved: Sequence[Sequence[str]],
    gold: Sequence[Collection[str]],
    seen: Collection[str],
    ks: Sequence[int] = KS,
) -> dict[str, float | int | None]:
    """Mean recall at each cut-off for seen and for unseen gold passages.

    ``seen``: passages that are gold of a training query.

    Returns:
        ``{"seen_recall@1": …, "seen_queries": …, "unseen_recall@1": …, "unseen_queries": …,
        "all_unseen_queries": …}``; the last is the number of queries with unseen gold passages only.
    """
    known = set(seen)
    result: dict[str, float | int | None] = {}
    split = {"seen": [set(g) & known for g in gold], "unseen": [set(g) - known for g in gold]}
    for kind, golds in split.items():
        pairs = [(ids, want) for ids, want in zip(retrieved, golds, strict=True) if want]
        for k in cutoffs(ks):
            values = [recall_at(ids, want, k) for ids, want in pairs]
            result[f"{kind}_recall@{k}"] = mean(values) if values else None
        result[f"{kind}_queries"] = len(pairs)
    result["all_unseen_queries"] = sum(bool(g) and known.isdisjoint(g) for g in gold)
    return result


SeenUnseen = metric_class(seen_unseen, __name__, predictions=["string"], references=["string"])
