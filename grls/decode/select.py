"""From logits to log-probabilities, and from these to the candidates of a step that finish or stay alive.

Legend: Q queries, R rows (beams), A candidates (each a beam continued by one allowed token), K beam width (of
all queries, or of each).

The rule of beam search in transformers: the finished candidates among the K best of a query enter its
results, and the K best unfinished candidates stay alive, however many have finished.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from grls.data.types import ScoreMode
from grls.decode.scope import Mask
from grls.errors import NOT_NUMBERS, ConfigError
from grls.index.rows import Ints
from grls.models.base import Floats, StepRows

_PRUNE_ABOVE = 4096


class Selection(NamedTuple):
    """Indices into the candidates, by query and then best first.

    Attributes:
        finished: Candidates that enter the results.
        live: Candidates that become the beams of the next step.
    """

    finished: Ints
    live: Ints


def select(queries: Ints, scores: Floats, complete: Mask, beams: int | Ints) -> Selection:
    """Pick the candidates of one step.

    Args:
        queries: ``[A]`` ascending; the query of each candidate.
        scores: ``[A]`` log-probability of each candidate's prefix; ``-inf`` is never picked.
        complete: ``[A]`` whether each candidate is finished.
        beams: K, or ``[Q]`` the K of each query.
    """
    pool = np.flatnonzero(scores > -np.inf)
    if len(pool) > _PRUNE_ABOVE:
        pool = _prune(pool, queries, scores, complete, beams)
    order = pool[np.lexsort((pool, -scores[pool], queries[pool]))]
    owner, done = queries[order], complete[order]
    rank = _rank_within(owner, np.ones(len(order), dtype=bool))
    live_rank = _rank_within(owner, ~done)
    wide = beams if isinstance(beams, int) else beams[owner]
    return Selection(order[done & (rank < wide)], order[~done & (live_rank < wide)])


def _rank_within(owner: Ints, counted: Mask) -> Ints:
    """The number of counted entries of the same owner before each entry (owners ascend)."""
    before: Ints = np.cumsum(counted) - counted
    first = np.searchsorted(owner, owner)
    return before - before[first] if len(owner) else before


def _prune(pool: Ints, queries: Ints, scores: Floats, complete: Mask, beams: int | Ints) -> Ints:
    """Keep only candidates that can be picked: for each query the K best, and the K best unfinished."""
    parts = []
    bounds = np.searchsorted(queries[pool], np.arange(queries[-1] + 2))
    for query, (low, high) in enumerate(pairwise(bounds)):
        candidates = pool[low:high]
        if not len(candidates):
            continue
        wide = beams if isinstance(beams, int) else int(beams[query])
        for chosen in (candidates, candidates[~complete[candidates]]):
            if len(chosen) > wide:
                # Keep all that are not below the K-th score, so that ties are broken by order, not by chance.
                kth = np.partition(scores[chosen], len(chosen) - wide)[len(chosen) - wide]
                chosen = chosen[scores[chosen] >= kth]
            parts.append(chosen)
    return np.unique(np.concatenate(parts))


def log_probabilities(
    session: StepRows, tokens: Ints, offsets: Ints, mode: ScoreMode
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log-probability (nats) of every allowed token, ``[A]``.

    ``renormalized``: the softmax over the allowed tokens, so the probabilities of the passages of a corpus
    sum to one, and a forced token has probability one. ``full``: the softmax over the vocabulary, as in
    transformers and in the paper (arXiv 2204.13596).

    Args:
        session: R rows, each about to write a token.
        tokens: ``[A]`` allowed tokens.
        offsets: ``[R + 1]``; row r owns the tokens ``offsets[r]:offsets[r + 1]``.
        mode: Score mode.
    """
    sizes = np.diff(offsets)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    logits = session.logits(rows, tokens).astype(np.float64)
    refuse_nan(logits)
    normalizer = session.log_normalizer() if mode == "full" else ragged_logsumexp(logits, offsets)
    refuse_nan(normalizer)
    return logits - normalizer[rows]


def refuse_nan(logits: Floats) -> None:
    """Refuse (ConfigError) logits that are NaN."""
    if np.isnan(logits).any():
        raise ConfigError(NOT_NUMBERS)


def ragged_logsumexp(values: Floats, offsets: Ints) -> Floats:
    """Log of the sum of exponentials of each segment, ``[R]``.

    It is minus infinity for an empty segment, and for a segment of minus infinities only.
    """
    result = np.full(len(offsets) - 1, -np.inf)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        starts = offsets[filled]
        top = np.maximum.reduceat(values, starts)
        sizes = np.diff(offsets)[filled]
        finite = top > -np.inf
        shift = np.repeat(np.where(finite, top, 0.0), sizes)
        sums = np.add.reduceat(np.exp(values - shift), starts)
        result[filled[finite]] = top[finite] + np.log(sums[finite])
    return result
