"""The set of passages with the highest expected F1, from the chains of a query.

Legend: S_i the set of the i-th chain, p_i its probability, d a passage.

The likeliest chain is the best answer to "which set exactly?". If the measure is F1 against the right set,
the best answer is the set S with the highest expected F1 (minimum Bayes risk): sum over i of p_i F1(S, S_i).
As F1(S, S_i) = 2 |S and S_i| / (|S| + |S_i|), the best set of k passages has the k passages with the largest
sum over i of p_i [d in S_i] 2 / (k + |S_i|). So it is enough to compare one set of each size (Dembczynski,
Waegeman, Cheng and Huellermeier, "An exact algorithm for F-measure maximization", NeurIPS 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grls.data.types import Chain, Hit


def expected_f1(chains: Sequence[Chain]) -> Chain:
    """The set of passages with the highest expected F1, as a chain.

    Args:
        chains: Chains of one query with log-probabilities as scores; they need not sum to one.

    Returns:
        The passages by probability (that of the chains that hold them), highest first, with
        log-probabilities as scores; the score of the chain is the log of the expected F1. The chain is
        ``done`` if the chains that are done have half of the probability or more. Among equal sets the
        smallest wins, with passages of likelier chains first. An empty set has no F1, as in
        :mod:`grls.evaluation.metrics.set_f1`; where all sets are empty, the likeliest chain is returned.

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
    names = {name: place for place, name in enumerate(dict.fromkeys(name for ids in sets for name in ids))}
    holds = np.zeros((len(chains), len(names)))
    for row, members in enumerate(sets):
        holds[row, [names[name] for name in members]] = 1
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
    """The logarithm of a probability; minus infinity for 0."""
    return math.log(value) if value > 0 else -math.inf
