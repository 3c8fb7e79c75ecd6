"""The set of passages whose expected F1 is highest, from chains that each are a guess of it.

Legend: S_i the set of the i-th chain, d a passage.

The likeliest chain is the best answer to "which set exactly?". Where what counts is F1 against the right
set, the best answer is the set S of highest expected F1 (minimum Bayes risk), with the chains'
probabilities p_i as what is known of the right set: sum over i of p_i F1(S, S_i). As F1(S, S_i) = 2 |S and
S_i| / (|S| + |S_i|), the best set of k passages is that of the k largest sum over i of p_i [d in S_i] 2 /
(k + |S_i|), so all sets are compared by comparing one of each size (Dembczynski, Waegeman, Cheng and
Huellermeier, "An exact algorithm for F-measure maximization", NeurIPS 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grls.data.types import Chain, Hit


def expected_f1(chains: Sequence[Chain]) -> Chain:
    """The set of highest expected F1, as a chain.

    Args:
        chains: Guesses of one query, whose scores are log-probabilities; they need not sum to one.

    Returns:
        Its passages by their probability (that of the chains that hold them), highest first, each with the
        log of it; the score is the log of the expected F1. It is ``done`` if chains that are have half of
        the probability or more. Among equals the fewest passages, those of likelier chains first. An empty
        set has no F1, as in :mod:`grls.evaluation.metrics.set_f1`; where all are, the likeliest chain.

    Raises:
        ValueError: There is no chain.
    """
    if not chains:
        raise ValueError("expected at least one chain.")
    if not any(chain.hits and chain.score > -math.inf for chain in chains):
        return max(chains, key=lambda chain: chain.score)
    scores = np.array([chain.score for chain in chains])
    probabilities = np.exp(scores - np.logaddexp.reduce(scores))
    sets = [dict.fromkeys(hit.id for hit in chain.hits) for chain in chains]
    names = {name: place for place, name in enumerate(dict.fromkeys(name for some in sets for name in some))}
    holds = np.zeros((len(chains), len(names)))
    for row, some in enumerate(sets):
        holds[row, [names[name] for name in some]] = 1
    sizes = holds.sum(1)
    best, chosen = -1.0, np.array([], dtype=int)
    for k in range(1, len(names) + 1):  # a set may be larger than any chain
        gains = (probabilities * 2 / (k + sizes)) @ holds
        order = np.argsort(-gains, kind="stable")[:k]
        if gains[order].sum() > best + 1e-12:
            best, chosen = float(gains[order].sum()), order
    likely = probabilities @ holds
    ids = list(names)
    ranked = sorted(chosen.tolist(), key=lambda place: (-likely[place], place))
    hits = tuple(Hit(ids[place], _log(min(likely[place], 1.0))) for place in ranked)
    done = float(probabilities[[chain.done for chain in chains]].sum())
    return Chain(hits, _log(best), done >= 0.5 - 1e-9)


def _log(value: float) -> float:
    """Of a probability that may be too small for a number: minus infinity."""
    return math.log(value) if value > 0 else -math.inf
