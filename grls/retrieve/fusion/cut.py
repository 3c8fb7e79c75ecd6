"""How many passages of a ranking to give: the first k whose expected F1 is highest.

Legend: n passages of a ranking, Q development queries, M the most gold passages that a ranking lacks.

Chains end by DONE (:mod:`grls.retrieve.hops.multistep`); a ranking ends nowhere, whoever made it. Here it
ends where F1 against the right set is expected to be highest. A logistic regression over what a ranking
shows of the passage in place r (its score, the best score, where it stands between the best and the last,
the gap behind it, r and log r) gives the probability p_r that it is gold, fitted on development queries.
With these taken as independent, and G = gold_1 + … + gold_n + missing, where ``missing`` is how many gold
passages the ranking lacks, as often as development queries lack them,

    expected F1 of the first k  =  E[2 (gold_1 + … + gold_k) / (k + G)],

which is computed exactly: how many of the first k are gold, and how many of the others, are Poisson-binomial.
Of independent passages the set of highest expected F1 is that of the likeliest k for some k (Ye, Chai, Lee
and Chieu, "Optimizing F-measures: a tale of two approaches", ICML 2012). The ranking's own order is kept,
though, so measures of rank change for what is cut alone. The module knows no text and no model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from grls.data.types import Chain, Hit
from grls.errors import ConfigError
from grls.models.base import Floats

_LEAST = 1e-9
"""No passage is less probable, so that logarithms are finite."""

_HIGHEST = 1e100
"""No score is farther from 0, so that squares are finite."""


class Size(NamedTuple):
    """Where a ranking is cut.

    Attributes:
        k: Passages that are kept.
        expected_f1: What F1 they are expected to have, in [0, 1].
    """

    k: int
    expected_f1: float


@dataclass(frozen=True)
class SetSize:
    """Cuts rankings of one system.

    Attributes:
        model: From features of a passage to the probability that it is gold.
        missing: ``[M + 1]`` how probable it is that a ranking lacks 0, 1, … gold passages.
    """

    model: Pipeline
    missing: Floats

    @classmethod
    def fit(cls, rankings: Sequence[Sequence[Hit]], gold: Sequence[Collection[str]]) -> SetSize:
        """Learn it from development queries.

        Args:
            rankings: ``[Q]`` hits, best first.
            gold: ``[Q]`` ids of the gold passages.

        Raises:
            ConfigError: No passage that was found is gold, or all are, so nothing tells them apart; or a
                score is beyond ±1e100.
        """
        right = [np.array([hit.id in own for hit in hits]) for hits, own in zip(rankings, gold, strict=True)]
        found = np.concatenate(right) if right else np.array([])
        if not 0 < found.sum() < len(found):
            raise ConfigError(
                f"of the {len(found):,} passages found for {len(right):,} development queries "
                f"{int(found.sum()):,} are gold: a cut needs some that are and some that are not. Tune on "
                "queries whose gold is in the run."
            )
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(np.concatenate([_features(hits) for hits in rankings]), found)
        lacking = [len(set(own) - {h.id for h in hits}) for own, hits in zip(gold, rankings, strict=True)]
        return cls(model, np.bincount(lacking) / len(lacking))

    def probabilities(self, hits: Sequence[Hit]) -> Floats:
        """``[n]`` the probability that each passage of a ranking is gold."""
        if not hits:
            return np.array([])
        found: Floats = self.model.predict_proba(_features(hits))[:, 1]
        return np.clip(found, _LEAST, 1 - _LEAST)

    def cut(self, hits: Sequence[Hit]) -> Chain:
        """The first passages of a ranking, as a chain that is done.

        Returns:
            Each passage with the log of its probability; the score is the log of the expected F1 (nats), or
            of 1e-9 for the empty chain of an empty ranking.
        """
        probabilities = self.probabilities(hits)
        size = best_size(probabilities, self.missing)
        kept = zip(hits[: size.k], np.log(probabilities).tolist(), strict=False)
        score = math.log(max(size.expected_f1, _LEAST))
        return Chain(tuple(Hit(hit.id, log) for hit, log in kept), score, True)


def best_size(probabilities: Floats, missing: Floats) -> Size:
    """The k whose expected F1 is highest, at least 1 where there is a passage; of equals the smallest.

    Args:
        probabilities: ``[n]`` that each passage of a ranking is gold, in its order.
        missing: ``[M + 1]`` that the ranking lacks 0, 1, … gold passages.
    """
    if not len(probabilities):
        return Size(0, 0.0)
    behind = [missing]  # of the last 0, 1, … passages: how many are gold or missing
    for p in probabilities[::-1]:
        behind.append(np.convolve(behind[-1], [1 - p, p]))
    best, before = Size(0, -math.inf), np.array([1.0])
    for k, p in enumerate(probabilities, 1):
        before = np.convolve(before, [1 - p, p])
        others = behind[len(probabilities) - k]
        right, left = np.arange(len(before))[:, None], np.arange(len(others))[None]
        value = float(before @ (2 * right / (k + right + left)) @ others)
        if value > best.expected_f1 + 1e-12:
            best = Size(k, value)
    return best


def _features(hits: Sequence[Hit]) -> Floats:
    """``[n, 6]`` what a ranking shows of its passages."""
    if not hits:
        return np.zeros((0, 6))
    scores = np.array([hit.score for hit in hits])
    if not np.abs(scores).max() <= _HIGHEST:
        raise ConfigError(
            f"a run to cut has scores from {scores.min():g} to {scores.max():g}; expected are some between "
            f"{-_HIGHEST:g} and {_HIGHEST:g}. Divide them all, of --tune, too, by one number."
        )
    ranks = np.arange(1, len(scores) + 1)
    height = scores[0] - scores[-1]
    between = (scores - scores[-1]) / height if height > 0 else np.ones(len(scores))
    gaps = np.append(scores[:-1] - scores[1:], 0.0)
    return np.stack((np.log(ranks), ranks, scores, np.full(len(scores), scores[0]), between, gaps), axis=1)
