"""Compares systems on the same queries: means, differences to a baseline with p values, time a query.

A system is a searcher, or anything else with ``search(texts, k)``. Recall (``R@5``) is ours
(:mod:`grls.evaluation.metrics.sequence_recall`), the other measures are by ``ir_measures``; both are as in
``grls evaluate``. Significance: :mod:`grls.evaluation.significance`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, Protocol

from grls.api.outcome import ExperimentTable, SystemScores
from grls.api.searching import Searching
from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages
from grls.data.inputs.arguments import Count, UnfitError, checked
from grls.data.inputs.gold import Gold, gold_of, refuse_unknown_gold
from grls.data.inputs.values import id_text, name_list, short_repr
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import cutoff, measure_names, query_values
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.evaluation.significance import Comparison, compare, holm
from grls.io.counts import counted

MEASURES = ("nDCG@10", "R@5", "RR")
"""The default measures."""

_LEAST_K = 10  # as `grls retrieve`
_RECALL = re.compile(r"R@(\d+)")


class SearchesTexts(Protocol):
    """What an experiment needs of a system."""

    def search(self, queries: list[str], k: int) -> Sequence[Sequence[Any]]:
        """The hits of each text, best first.

        A hit is an id, a tuple that begins with one, or has one as ``id``.
        """


def _measures(value: Any) -> list[str]:
    """The names of measures, before anything else is done."""
    try:
        return measure_names(value)
    except TypeError:  # no list, or a list in it
        raise UnfitError(f"names of measures, such as {name_list(MEASURES)}", value) from None


@checked
def experiment(
    systems: Mapping[str, SearchesTexts],
    queries: Any,
    gold: Any = None,
    measures: Annotated[Any, _measures] = MEASURES,
    baseline: str | None = None,
    k: Count | None = None,
) -> ExperimentTable:
    """Compare systems on the same queries.

    All arguments are checked before the first search. Each system answers one query first, so that the time
    a query does not include what happens once.

    Args:
        systems: Name -> a searcher, or anything with ``search(texts, k)`` that gives each text's hits.
        queries: The queries, in any form that :func:`~grls.data.inputs.queries.queries_from` takes.
        gold: Their gold passages, in any form that :func:`~grls.data.inputs.gold.gold_of` takes; None: the
            evidence of the queries. With the queries of a data set folder the name of a split, such as
            ``"test"``: without it the queries of all splits take part, those of training too.
        measures: Names of measures: ``R@k`` is the recall of gold passages, all others are those of
            ``ir_measures``, whose objects (``nDCG @ 10``) may stand for their names.
        baseline: The name of the system that the others are compared with; None: no comparison.
        k: Hits of each query; None: as many as the deepest cut-off reads, and at least 10. Measures without a
            cut-off (``RR``, ``AP``) read ``k`` hits.

    Returns:
        The table: means, differences to the baseline and their p values (two-sided paired permutation test,
        by Holm's correction for the systems compared), and the seconds a query.

    Raises:
        ConfigError: There is no system, one cannot search, ``baseline`` names none, a measure is unknown, or
            ``k`` is less than a cut-off.
        DataError: Queries or gold are wrong (a gold passage is in no corpus, a query has no gold passage), or
            a system gives something other than hits.
    """
    _check_systems(systems, baseline)
    depth = _depth(measures, k)
    joined = gold_of(gold, queries)
    corpora = [getattr(system, "corpus", None) for system in systems.values()]
    refuse_unknown_gold(joined, [corpus for corpus in corpora if isinstance(corpus, Corpus)])
    values: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, float] = {}
    for name, system in systems.items():
        rankings, seconds[name] = _searched(name, system, joined, depth)
        values[name] = _values(measures, rankings, joined)
    return ExperimentTable(
        tuple(measures), _rows(values, seconds, baseline), baseline, depth, len(joined.queries)
    )


def _check_systems(systems: Mapping[str, Any], baseline: str | None) -> None:
    if not systems:
        raise ConfigError(
            "systems: expected a dict of at least one system, such as {'bm25': grls.BM25(corpus)}, got {}."
        )
    for name, system in systems.items():
        if not callable(getattr(system, "search", None)):
            raise ConfigError(
                f"systems: {name!r}: expected something with search(texts, k), got {short_repr(system)}; "
                "open a retriever folder with grls.load."
            )
    if baseline is not None and baseline not in systems:
        raise ConfigError(f"baseline: {baseline!r} is none of the systems {name_list(systems)}.")


def _depth(measures: Sequence[str], k: int | None) -> int:
    """Hits of each query."""
    if not measures:
        raise ConfigError(f"measures: expected at least one measure, such as {name_list(MEASURES)}.")
    deepest = max(map(cutoff, measures))
    if k is None:
        return max(deepest, _LEAST_K)
    if k < deepest:
        raise ConfigError(
            f"a measure reads {counted(deepest, 'hit')}, and k is {k}: raise k, or leave it out."
        )
    return k


def _searched(name: str, system: SearchesTexts, gold: Gold, k: int) -> tuple[dict[str, list[str]], float]:
    """Query id -> passage ids, best first, and the seconds a query."""
    texts = [query.text for query in gold.queries]
    search = system.rankings if isinstance(system, Searching) else system.search
    search(texts[:1], k)
    begun = time.perf_counter()
    results = list(search(texts, k))
    seconds = time.perf_counter() - begun
    if len(results) != len(texts):
        raise DataError(
            f"the system {name!r} gave {counted(len(results), 'list')} of hits for "
            f"{counted(len(texts), 'query')}; expected one "
            "list a query, in their order."
        )
    pairs = zip(gold.queries, results, strict=True)
    return {query.id: _ids(hits, f"{name!r}, query {query.id!r}", k) for query, hits in pairs}, seconds / len(
        texts
    )


def _ids(hits: Any, place: str, k: int) -> list[str]:
    """The ids of the first k hits, which are passages; checked."""
    if isinstance(hits, str) or not hasattr(hits, "__iter__"):
        raise DataError(f"the system {place}: expected a list of hits, got {short_repr(hits)}.")
    ids = [id_text(_hit_id(hit), f"{place}, a hit", "the results of a system") for hit in hits]
    passages = [name for name in ids if name != DONE_ID][:k]
    if len(set(passages)) < len(passages):
        raise DataError(f"the system {place}: a passage is listed twice; a ranking holds each passage once.")
    return passages


def _hit_id(hit: Any) -> Any:
    """The id of a hit: its field ``id``, the first of a tuple, or the hit itself."""
    if hasattr(hit, "id"):
        return hit.id
    return hit[0] if isinstance(hit, tuple | list) and hit else hit


def _values(names: Sequence[str], rankings: Mapping[str, list[str]], gold: Gold) -> dict[str, list[float]]:
    """Measure -> one value a query, in the order of the queries."""
    qrels = {query.id: gold.qrels[query.id] for query in gold.queries}
    standard = query_values([name for name in names if not _RECALL.fullmatch(name)], rankings, qrels)
    values = {}
    for name in names:
        recall = _RECALL.fullmatch(name)
        values[name] = (
            standard[name]
            if recall is None
            else [
                recall_at(rankings[query.id], gold_passages(query, qrels), int(recall[1]))
                for query in gold.queries
            ]
        )
    return values


def _rows(
    values: Mapping[str, Mapping[str, Sequence[float]]], seconds: Mapping[str, float], baseline: str | None
) -> tuple[SystemScores, ...]:
    measures = next(iter(values.values())).keys()
    compared = {} if baseline is None else {name: _compared(values, baseline, name) for name in measures}
    rows = []
    for system, scores in values.items():
        against = {name: one[system] for name, one in compared.items() if system in one}
        rows.append(
            SystemScores(
                system,
                {name: fmean(numbers) for name, numbers in scores.items()},
                {name: comparison for name, (comparison, _) in against.items()},
                {name: p for name, (_, p) in against.items()},
                seconds[system],
            )
        )
    return tuple(rows)


def _compared(
    values: Mapping[str, Mapping[str, Sequence[float]]], baseline: str, measure: str
) -> dict[str, tuple[Comparison, float]]:
    """System -> its comparison with the baseline in one measure, and p corrected for all systems."""
    others = {name: scores[measure] for name, scores in values.items() if name != baseline}
    comparisons = [compare(scores, values[baseline][measure]) for scores in others.values()]
    corrected = holm([one.p for one in comparisons])
    return dict(zip(others, zip(comparisons, corrected, strict=True), strict=True))
