"""Compares systems on the same queries: means, differences to a baseline with p values, time a query.

A system is a searcher, or anything else with ``search(texts, k)``. Recall (``R@5``) is ours
(:func:`grls.evaluation.metrics.sequence_recall`), the other measures are by ``ir_measures``; both are as in
``grls evaluate``. The table: :mod:`grls.report.systems`, as of ``grls experiment``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from grls.api.searcher import Searcher
from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import own_corpus, passage_queries, told_unknown
from grls.data.inputs.gold import SOURCE, gold_of
from grls.data.inputs.tables import existing_path, id_text, name_list
from grls.data.types import Query
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import cutoff, measure_names, query_values
from grls.io.arguments import Count, checked, list_from, short_repr
from grls.io.progress import counted
from grls.report.systems import ExperimentTable, SystemRun, compare_systems
from grls.retrieve.run import retrieve_results
from grls.runs.trec import trec_order

MEASURES = ("nDCG@10", "R@5", "RR")
"""The default measures."""

_LEAST_K = 10  # as `grls retrieve`

_SYSTEM = "the results of a system"


class SearchesTexts(Protocol):
    """What an experiment needs of a system."""

    def search(self, queries: list[str], k: int) -> Sequence[Sequence[Any]]:
        """The hits of each text, best first.

        A hit is an id, a tuple that begins with one, or has one as ``id``, ``doc_id`` or ``docid``. Passage
        ids with their scores (a dict) are ranked by the scores.
        """


@checked
def experiment(
    systems: Mapping[str, SearchesTexts],
    queries: Any,
    gold: Any = None,
    measures: Annotated[Any, measure_names] = MEASURES,
    baseline: str | None = None,
    k: Count | None = None,
) -> ExperimentTable:
    """Compare systems on the same queries.

    All arguments are checked before the first search. Each system answers one query first, so that the time
    a query does not include what happens once.

    Args:
        systems: Name -> a searcher, or anything with ``search(texts, k)`` that gives each text's hits.
        queries: The queries, in any form that :func:`~grls.data.inputs.entries.queries_from` takes.
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
    if not measures:
        raise ConfigError(f"measures: expected at least one measure, such as {name_list(MEASURES)}.")
    deepest = max(map(cutoff, measures))
    if k is not None and k < deepest:
        raise ConfigError(
            f"a measure reads {counted(deepest, 'hit')}, and k is {k}: raise k, or leave it out."
        )
    depth = max(deepest, _LEAST_K) if k is None else k
    joined = gold_of(gold, queries)
    corpora = [getattr(system, "corpus", None) for system in systems.values()]
    known = [corpus for corpus in corpora if isinstance(corpus, Corpus)]
    told_unknown(*joined, known, SOURCE)
    folder = existing_path(queries, "queries")
    if not known and folder is not None and (corpus := own_corpus(folder)) is not None:
        known = [corpus]
    asked = joined.queries
    own = passage_queries(asked, joined.qrels, known[0]) if known else frozenset()

    def found(system: Any, asked: Sequence[Query]) -> list[Any]:
        if not isinstance(system, Searcher):
            return list(system.search([query.text for query in asked], depth + bool(own)))
        with system.lock:
            results = retrieve_results(system.retriever, asked, depth, [None] * len(asked), own)
        return [result.hits for result in results]

    runs: dict[str, SystemRun] = {}
    for name, system in systems.items():
        found(system, asked[:1])
        begun = time.perf_counter()
        results = found(system, asked)
        seconds = (time.perf_counter() - begun) / len(asked)
        if len(results) != len(asked):
            raise DataError(
                f"the system {name!r} gave {counted(len(results), 'list')} of hits for "
                f"{counted(len(asked), 'query')}; expected one list a query, in their order."
            )
        rankings = {}
        for query, hits in zip(asked, results, strict=True):
            ids = _ids(hits, f"{name!r}, query {query.id!r}", depth + bool(own))
            rankings[query.id] = [i for i in ids if i != query.id or i not in own][:depth]
        values = query_values(measures, rankings, {query.id: joined.qrels[query.id] for query in asked})
        runs[name] = SystemRun(values, costs={"seconds": seconds})
    rows = compare_systems({name: [run] for name, run in runs.items()}, baseline)
    return ExperimentTable(tuple(measures), rows, baseline, depth, len(asked))


_ID = ("id", "doc_id", "docid", "docno", "passage_id", "corpus_id")
"""How the hits of other libraries call the id of a passage."""


def _ids(hits: Any, label: str, k: int) -> list[str]:
    """The ids of the first k hits, which are passages; checked."""
    listed = None if hasattr(hits, "_fields") else list_from(hits)  # a named tuple is a single hit
    is_series = hasattr(hits, "items") and hasattr(hits, "index") and not hasattr(hits, "columns")
    if isinstance(hits, Mapping) or (is_series and list(hits.index) != [*range(len(hits))]):
        scores = {id_text(name, f"{label}, a hit", _SYSTEM): _score(score) for name, score in hits.items()}
        known = {name: score for name, score in scores.items() if score is not None}
        listed = [hit.id for hit in trec_order(known)] if len(known) == len(scores) else None
    if listed is None or any(isinstance(hit, list) and len(hit) > 1 and _are_texts(hit) for hit in listed):
        raise DataError(
            f"the system {label}: expected a list of hits, got {short_repr(hits)}: give passage ids, the "
            "best first, or ids with their scores, such as {'p7': 3.2}."
        )
    ids, last = [], math.inf
    for hit in listed:
        name, score = hit, None
        if fields := [getattr(hit, name) for name in _ID if hasattr(hit, name)]:
            name, score = fields[0], _score(getattr(hit, "score", None))
        elif isinstance(hit, tuple | list) and hit:
            name, score = hit[0], _score(hit[1]) if len(hit) == 2 else None
        ids.append(id_text(name, f"{label}, a hit", _SYSTEM))
        if score is not None and score > last:
            raise DataError(
                f"the system {label}: the scores rise, from {last:g} to {score:g} at passage {ids[-1]!r}: "
                "give the best hit first, with the highest score, or ids alone."
            )
        last = last if score is None else score
    passages = [name for name in ids if name != DONE_ID][:k]
    if len(set(passages)) < len(passages):
        raise DataError(f"the system {label}: a passage is listed twice; a ranking holds each passage once.")
    return passages


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _score(value: Any) -> float | None:
    """A score, of NumPy or Torch, too; None for what is no finite number."""
    try:
        score = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError):
        return None
    return score if math.isfinite(score) else None
