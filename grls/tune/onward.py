"""The onward model learned: when does one more hop find a gold passage?

Legend: Q development queries, m hops of chains that were seen, f their features.

A hop's label is the share of its hits that is gold and not yet in the chain. A logistic regression fits the
labels, each hop counting alike. What the model is worth cannot be seen on the queries that it was learned
from. So each fifth of the queries is ranked with the model of the other four.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from grls.retrieve.hops.options import FEATURES
from grls.retrieve.hops.stop import SeenHop

_FOLDS = 5
"""Parts of the development queries."""

Model = tuple[float, ...]
"""A weight for each feature, then the bias."""


def learn_onward(seen: Sequence[SeenHop], gold: Sequence[Collection[str]]) -> Model | None:
    """Learn the model; None: no hop finds a gold passage, or none finds another one.

    Args:
        seen: ``[m]`` hops.
        gold: ``[Q]`` ids of the gold passages.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    found = np.array([_gold_share(one, gold[one.query]) for one in seen])
    if not 0 < found.sum() < len(found):
        return None
    features = np.array([one.features for one in seen]).reshape(-1, len(FEATURES))
    scaler = StandardScaler().fit(features)
    scaled = scaler.transform(features)
    both = np.concatenate([scaled, scaled])
    labels = np.repeat([1, 0], len(found))
    regression = LogisticRegression(max_iter=1000)
    regression.fit(both, labels, sample_weight=np.concatenate([found, 1 - found]))
    weights = regression.coef_[0] / scaler.scale_
    bias = float(regression.intercept_[0] - weights @ scaler.mean_)
    return (*(round(float(weight), 6) for weight in weights), round(bias, 6))


def cross_validated(
    seen: Sequence[SeenHop],
    gold: Sequence[Collection[str]],
    search: Callable[[Model, list[int]], list[Any]],
) -> list[Any] | None:
    """What is found for each query with a model that was learned without it.

    Args:
        seen: ``[m]`` hops.
        gold: ``[Q]`` ids of the gold passages.
        search: Finds something for the queries of these numbers with a model.

    Returns:
        ``[Q]`` what was found; None: there are too few queries, or a part has no model.
    """
    if len(gold) < 2 * _FOLDS:
        return None
    results: list[Any] = [None] * len(gold)
    for fold in range(_FOLDS):
        model = learn_onward([one for one in seen if one.query % _FOLDS != fold], gold)
        if model is None:
            return None
        numbers = list(range(fold, len(gold), _FOLDS))
        for number, result in zip(numbers, search(model, numbers), strict=True):
            results[number] = result
    return results


def _gold_share(one: SeenHop, gold: Collection[str]) -> float:
    return min(sum(share for name, share in one.shares.items() if name in gold), 1.0)
