"""Which candidates of a step finish and which live on.

Legend: Q queries, A candidates (each a beam continued by one allowed token), K beam width.

The rule is that of transformers' beam search: of the K best candidates of a query those that are finished
enter its results; the K best that are not finished live on, whatever has finished.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from grls.decode.scope import Mask
from grls.index.rows import Ints
from grls.models.base import Floats

_PRUNE_ABOVE = 4096


class Selection(NamedTuple):
    """Indices into the candidates, by query and then best first.

    Attributes:
        finished: Candidates that enter the results.
        live: Candidates that become the beams of the next step.
    """

    finished: Ints
    live: Ints


def select(queries: Ints, scores: Floats, complete: Mask, beams: int) -> Selection:
    """Pick the candidates of one step.

    Args:
        queries: ``[A]`` ascending; the query of each candidate.
        scores: ``[A]`` log-probability of each candidate's prefix; ``-inf`` is never picked.
        complete: ``[A]`` whether it is finished.
        beams: K.
    """
    pool = np.flatnonzero(scores > -np.inf)
    if len(pool) > _PRUNE_ABOVE:
        pool = _prune(pool, queries, scores, complete, beams)
    order = pool[np.lexsort((pool, -scores[pool], queries[pool]))]
    owner, done = queries[order], complete[order]
    rank = _rank_within(owner, np.ones(len(order), dtype=bool))
    live_rank = _rank_within(owner, ~done)
    return Selection(order[done & (rank < beams)], order[~done & (live_rank < beams)])


def _rank_within(owner: Ints, counted: Mask) -> Ints:
    """How many counted entries of the same owner stand before each entry (owners ascend)."""
    before: Ints = np.cumsum(counted) - counted
    first = np.searchsorted(owner, owner)
    return before - before[first] if len(owner) else before


def _prune(pool: Ints, queries: Ints, scores: Floats, complete: Mask, beams: int) -> Ints:
    """Drop candidates that cannot be picked: all but each query's K best, and K best unfinished."""
    kept = []
    bounds = np.searchsorted(queries[pool], np.arange(queries[-1] + 2))
    for low, high in pairwise(bounds):
        part = pool[low:high]
        for some in (part, part[~complete[part]]):
            if len(some) > beams:
                # Everything not below the K-th score, so that ties are broken by place, not by chance.
                kth = np.partition(scores[some], len(some) - beams)[len(some) - beams]
                some = some[scores[some] >= kth]
            kept.append(some)
    return np.unique(np.concatenate(kept))
