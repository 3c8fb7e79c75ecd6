"""Hits of each hop: the share of queries whose h-th retrieved passage is a gold one (H1, H2, …).

Convention: the h-th passage of a chain is a hit if it is gold and not an earlier passage of the chain (where
the gold evidence uses a passage twice, its second place counts, too); its place in the gold order does not
count (:mod:`path match <grls.evaluation.metrics.path_match>` says whether it was right). H_h is the mean over
the queries with at least h gold passages, so each hop has its own number of queries; a chain that ends before
its h-th hop scores 0 there. DONE is no passage: leave it out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.metrics.averages import mean, metric_class


def hop_hits(
    retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]], limit: int | None = None
) -> dict[str, float]:
    """Hits of each hop, ``{"H1": …, "H2": …}``, for every hop of which some query has a gold passage.

    ``gold`` names a passage as often as it is used. ``limit``: the largest number of hops; None: as many as
    the longest chain has.
    """
    pairs = [(list(ids), list(evidence)) for ids, evidence in zip(retrieved, gold, strict=True)]
    longest = max((len(evidence) for _, evidence in pairs), default=0)
    hops = limit if limit is not None else max((len(ids) for ids, _ in pairs), default=0)
    return {
        f"H{hop + 1}": mean(
            hop < len(ids) and ids[: hop + 1].count(ids[hop]) <= evidence.count(ids[hop])
            for ids, evidence in pairs
            if len(evidence) > hop
        )
        for hop in range(min(longest, hops))
    }


HopHitsMetric = metric_class(hop_hits, __name__, predictions=["string"], references=["string"])
