"""Fusing runs that were retrieved already, and cutting rankings where the expected F1 is highest.

The formulas of fusion: :mod:`grls.retrieve.fusion.retriever`. Whether runs belong together:
:mod:`grls.runs.comparable`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from grls.data.types import Chain, Hit
from grls.errors import ConfigError, Option
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.fusion.retriever import Fusion
from grls.runs.portions import RunInfo, Steps
from grls.runs.run import Run

_LEAST = 1e-9
"""No passage is less probable, so that logarithms are finite."""

_HIGHEST = 1e100
"""No score is farther from 0, so that squares are finite."""


def fused_run(members: Sequence[Run], fusion: Fusion, k: int | None = None) -> Run:
    """Fuse runs that hold the same queries into rankings of ``k`` passages, or else of as many as the longest
    ranking holds; the result has no manifest.
    """
    shared_steps(members)
    k = fused_depth(members, k)
    rankings = {
        query: fusion.fuse([run.rankings[query] for run in members], k) for query in members[0].rankings
    }
    return Run(rankings, score_mode=fusion.method)


def fused_depth(members: Sequence[Run], k: int | None) -> int | None:
    """The number of passages of a fused ranking; None: all members are empty."""
    longest = max((len(hits) for run in members for hits in run.rankings.values()), default=0)
    return k if k is not None else longest or None


def ensemble(
    members: Sequence[Run],
    fusion: Fusion,
    options: dict[str, Any],
    k: int | None = None,
    name: str | None = None,
) -> Run:
    """:func:`fused_run` with a manifest, which holds ``options``, too.

    ``name`` is that of reports; None: from the method and the members.
    """
    start = perf_counter()
    fused, steps = fused_run(members, fusion, k), shared_steps(members)
    infos = [run.info for run in members if run.info is not None]
    tokens = [info.computed_tokens for info in infos if info.computed_tokens is not None]
    depths = [depth for run in members if (depth := run.depth()) is not None]
    sources = {
        "runs": [run.path for run in members],
        "k": fused_depth(members, k),
        "members_depth": min(depths, default=None),
        "pool": any(run.is_ranking for run in members),
    }
    method = {"method": fusion.method, "rrf_k": fusion.rrf_k}
    # Empty where that of a member is unknown.
    prints = [run.info.retriever if run.info is not None else "" for run in members]
    parts = json.dumps([prints, {**method, "weights": fusion.weights}]).encode()
    info = RunInfo(
        system="ensemble",
        name=name or f"{fusion.method} of {' + '.join(run.name for run in members)}",
        steps=steps,
        corpus="",
        queries="",
        data="",
        split=None,
        score_mode=fusion.method,
        stages=tuple(dict.fromkeys(stage for info in infos for stage in info.stages)),
        members=tuple(run.name for run in members),
        seconds=perf_counter() - start + sum(info.seconds for info in infos),  # members' time counts
        options={**sources, **method, **options, "weights": fusion.weights},
        retriever=hashlib.sha256(parts).hexdigest() if all(prints) else "",
        computed_tokens=sum(tokens) if len(tokens) == len(members) else None,
    )
    return replace(fused, info=info)


def shared_steps(runs: Sequence[Run]) -> Steps:
    """The steps of a fusion of runs: fixed where all are, ranked where one is, else single."""
    for run in runs:
        if run.steps == "dynamic":
            raise ConfigError(
                f"{run.path} is dynamic: chains that end by themselves are not fused. Retrieve with "
                f"{Option('hops.steps', 'ranked')}, or fuse rankings and cut the result (`grls fuse cut`)."
            )
    steps = {run.steps for run in runs}
    return "fixed" if steps == {"fixed"} else "ranked" if "ranked" in steps else "single"


@dataclass(frozen=True)
class SetSize:
    """Cuts the rankings of one system where the F1 against the gold passages is expected to be highest.

    Legend: n passages of a ranking, Q development queries, M the most gold passages that a ranking lacks.

    A logistic regression on features of the passage of rank r (its score, the best score, its position
    between the best and the last score, the gap behind it, r and log r) gives the probability p_r that it is
    gold, fitted on development queries. With these taken as independent, and G = gold_1 + … + gold_n +
    missing, where ``missing`` is the number of gold passages that the ranking lacks, as often as on
    development queries,

        expected F1 of the first k  =  E[2 (gold_1 + … + gold_k) / (k + G)],

    which is computed exactly: the numbers of gold passages among the first k and among the others are
    Poisson-binomial. Of independent passages the set of highest expected F1 is that of the likeliest k for
    some k (Ye, Chai, Lee and Chieu, "Optimizing F-measures: a tale of two approaches", ICML 2012). The order
    of the ranking does not change, so measures of rank change by the cut alone.

    Args:
        mean: The mean of each feature, like the next two one for each.
        scale: Its standard deviation.
        weights: Its weight in the regression, after mean and scale.
        bias: The bias of the regression.
        missing: ``[M + 1]`` probabilities that a ranking lacks 0, 1, … gold passages.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    missing: tuple[float, ...]

    @classmethod
    def fit(cls, rankings: Sequence[Sequence[Hit]], gold: Sequence[Collection[str]]) -> SetSize:
        """Fit it to development queries.

        Args:
            rankings: ``[Q]`` hits, best first.
            gold: ``[Q]`` ids of the gold passages.
        """
        gold_masks = [
            np.array([hit.id in ids for hit in hits]) for hits, ids in zip(rankings, gold, strict=True)
        ]
        labels = np.concatenate(gold_masks) if gold_masks else np.array([])
        if not 0 < labels.sum() < len(labels):
            raise ConfigError(
                f"of the {counted(len(labels), 'passage')} found for "
                f"{counted(len(gold_masks), 'development query')} "
                f"{int(labels.sum()):,} are gold: a cut needs some that are and some that are not. Tune on "
                "queries whose gold is in the run."
            )
        from sklearn.linear_model import LogisticRegression  # late: it takes seconds
        from sklearn.preprocessing import StandardScaler

        features = np.concatenate([_features(hits) for hits in rankings])
        scaler, regression = StandardScaler(), LogisticRegression(max_iter=1000)
        regression.fit(scaler.fit_transform(features), labels)
        lacking = [len(set(ids) - {h.id for h in hits}) for ids, hits in zip(gold, rankings, strict=True)]
        arrays = scaler.mean_, scaler.scale_, regression.coef_[0], np.bincount(lacking) / len(lacking)
        mean, scale, weights, missing = (tuple(numbers.tolist()) for numbers in arrays)
        return cls(mean, scale, weights, float(regression.intercept_[0]), missing)

    def probabilities(self, hits: Sequence[Hit]) -> Floats:
        """``[n]`` the probability that each passage of a ranking is gold."""
        scaled = (_features(hits) - self.mean) / self.scale
        probabilities: Floats = np.exp(-np.logaddexp(0, -(scaled @ self.weights + self.bias)))
        return np.clip(probabilities, _LEAST, 1 - _LEAST)

    def cut(self, hits: Sequence[Hit]) -> Chain:
        """The first passages of a ranking, as a chain that is done.

        A hit has the log of its probability, the chain the log of the expected F1 (nats), or of 1e-9 where
        the ranking is empty.
        """
        probabilities = self.probabilities(hits)
        k, expected_f1 = best_size(probabilities, np.array(self.missing))
        pairs = zip(hits[:k], np.log(probabilities).tolist(), strict=False)
        score = math.log(max(expected_f1, _LEAST))
        return Chain(tuple(Hit(hit.id, log) for hit, log in pairs), score, True)


def best_size(probabilities: Floats, missing: Floats) -> tuple[int, float]:
    """The smallest k whose expected F1 is highest, at least 1 where there is a passage, and that F1.

    Args:
        probabilities: ``[n]`` that each passage of a ranking is gold, in its order.
        missing: ``[M + 1]`` that the ranking lacks 0, 1, … gold passages.
    """
    if not len(probabilities):
        return 0, 0.0
    behind = [missing]  # of the last 0, 1, … passages: the distribution of gold and missing ones
    for p in probabilities[::-1]:
        behind.append(np.convolve(behind[-1], [1 - p, p]))
    best, before = (0, -math.inf), np.array([1.0])
    for k, p in enumerate(probabilities, 1):
        before = np.convolve(before, [1 - p, p])
        after = behind[len(probabilities) - k]
        right, left = np.arange(len(before))[:, None], np.arange(len(after))[None]
        value = float(before @ (2 * right / (k + right + left)) @ after)
        if value > best[1] + 1e-12:
            best = k, value
    return best


def _features(hits: Sequence[Hit]) -> Floats:
    """``[n, 6]`` features of the passages of a ranking."""
    if not hits:
        return np.zeros((0, 6))
    scores = np.array([hit.score for hit in hits])
    if not np.abs(scores).max() <= _HIGHEST:
        raise ConfigError(
            f"a run to cut has scores from {scores.min():g} to {scores.max():g}; expected are some between "
            f"{-_HIGHEST:g} and {_HIGHEST:g}. Divide them all, of {Option('tune')}, too, by one number."
        )
    ranks = np.arange(1, len(scores) + 1)
    height = scores[0] - scores[-1]
    between = (scores - scores[-1]) / height if height > 0 else np.ones(len(scores))
    gaps = np.append(scores[:-1] - scores[1:], 0.0)
    return np.stack((np.log(ranks), ranks, scores, np.full(len(scores), scores[0]), between, gaps), axis=1)
