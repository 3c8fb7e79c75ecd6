"""Scores by the type of a question, where the metadata of queries have a field ``type``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from grls.data.types import Query
from grls.evaluation.hop_scores import FoundByHops
from grls.evaluation.metrics.complete_recall import complete_recall
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.evaluation.metrics.set_f1 import set_f1

FIELD = "type"
_MOST = 20
"""More values than this are no types: the field means something else."""


def types_of(queries: Sequence[Query]) -> dict[str, list[int]]:
    """Type -> places of its queries, ascending by type; nothing where fewer than two types are named."""
    found: dict[str, list[int]] = {}
    for place, query in enumerate(queries):
        value = json.loads(query.metadata).get(FIELD)
        if isinstance(value, str):
            found.setdefault(value, []).append(place)
    return dict(sorted(found.items())) if 2 <= len(found) <= _MOST else {}


def scores_by_type(
    queries: Sequence[Query],
    ids: Sequence[Sequence[str]],
    gold: Sequence[Sequence[str]],
    ks: Sequence[int],
    chains: Sequence[Sequence[str]] | None = None,
    hops: FoundByHops | None = None,
) -> Mapping[str, dict[str, float | int]] | None:
    """Recall, complete recall, set F1 of chains, and scores of hops, by type; None where queries have none.

    Args:
        queries: ``[Q]``.
        ids: Passage ids of each, best first.
        gold: Gold passage ids of each.
        ks: Cut-offs.
        chains: Passage ids of each query's chain.
        hops: What the hops of each query found.
    """
    report = {}
    for name, places in types_of(queries).items():
        wanted = [gold[place] for place in places]
        part = [ids[place] for place in places]
        scores: dict[str, float | int] = {"queries": len(places)}
        scores |= sequence_recall(part, wanted, ks) | complete_recall(part, wanted, ks)
        if chains is not None:
            own = [chains[place] for place in places]
            scores |= {"set_f1": set_f1(own, wanted)["f1"], **known_number(own, wanted)}
        report[name] = scores | ({} if hops is None else hops.scores(places))
    return report or None
