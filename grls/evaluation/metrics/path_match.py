"""Path match: the share of queries whose first retrieved passages are the evidence, in an accepted order.

Convention: a query with a path of n gold passages scores 1 if its first n retrieved passages are that path,
passage by passage (in any order, if the data allow any order), else 0; then the mean over queries. One of
several equally good paths is enough. Passages after the first n do not count: set F1 measures whether a chain
ends in time. A passage retrieved twice takes two places, so the path is not matched. A query without an
accepted path scores 0; leave out queries without a known order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grls.evaluation.metrics.averages import mean, metric_class


class Accepted(NamedTuple):
    """The accepted paths of one query.

    Attributes:
        paths: Equally good paths, each the ids of gold passages in retrieval order.
        any_order: Whether a path's passages may come in any order.
    """

    paths: Sequence[Sequence[str]]
    any_order: bool = False


def matches(retrieved: Sequence[str], accepted: Accepted) -> bool:
    """Whether the retrieved passages of one query begin with one of its paths."""
    for path in map(list, accepted.paths):
        first = list(retrieved[: len(path)])
        if path and (first == path or (accepted.any_order and sorted(first) == sorted(path))):
            return True
    return False


def path_match(retrieved: Sequence[Sequence[str]], accepted: Sequence[Accepted]) -> dict[str, float]:
    """Share of queries whose path is matched, ``{"path_match": …}``."""
    return {"path_match": mean(matches(*pair) for pair in zip(retrieved, accepted, strict=True))}


PathMatch = metric_class(
    lambda predictions, references: path_match(predictions, [Accepted(**paths) for paths in references]),
    __name__,
    predictions=["string"],
    references={"paths": [["string"]], "any_order": "bool"},
)
