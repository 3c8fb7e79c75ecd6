"""Exact chains: the share of queries whose chain is the gold evidence and nothing else.

Convention: ``exact_set`` is 1 for a query whose distinct passages are its gold passages, whatever their order
(passage exact match of arXiv 2009.12756, where the chain has to end at the right place as well);
``exact_chain`` is 1 where the chain is one of the accepted paths, passage by passage (in any order, if the
data allow any order). Both ask for the right end as well as for the right passages, unlike complete recall
and path match.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.evaluation.metrics.averages import mean, metric_class
from grls.evaluation.metrics.path_match import Accepted, matches


def exact_chain(
    retrieved: Sequence[Sequence[str]],
    gold: Sequence[Collection[str]],
    accepted: Sequence[Accepted | None] = (),
) -> dict[str, float]:
    """Shares of queries with exactly the gold passages, and with an accepted path.

    Args:
        retrieved: Passage ids of each query's chain.
        gold: Its gold passage ids.
        accepted: Its paths; None without a known order. Empty: no query has a known order.

    Returns:
        ``{"exact_set": …}`` and, where some order is known, ``"exact_chain"`` over the queries with one.
    """
    chains = [list(ids) for ids in retrieved]
    golds = [set(ids) for ids in gold]
    shares = {"exact_set": mean(bool(g) and set(ids) == g for ids, g in zip(chains, golds, strict=True))}
    paths = [(ids, right) for ids, right in zip(chains, accepted, strict=False) if right is not None]
    if paths:
        shares["exact_chain"] = mean(
            matches(ids, right._replace(paths=[path for path in right.paths if len(path) == len(ids)]))
            for ids, right in paths
        )
    return shares


ExactChain = metric_class(exact_chain, __name__, predictions=["string"], references=["string"])
