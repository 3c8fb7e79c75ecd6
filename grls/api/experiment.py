"""Compares systems on the same queries: means, differences to a baseline with p values, time a query.

A system is a searcher, or anything else with ``search(texts, k)``. Recall (``R@5``) is ours
(:mod:`grls.evaluation.metrics.sequence_recall`), the other measures are by ``ir_measures``; both are as in
``grls evaluate``. The table: :mod:`grls.report.systems`, as of ``grls experiment``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from grls.api.searcher import Searcher
from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import told_unknown
from grls.data.inputs.arguments import Count, checked
from grls.data.inputs.gold import SOURCE, gold_of
from grls.data.inputs.tables import id_text, name_list, short_repr
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import cutoff, measure_names, query_values
from grls.io.progress import counted
from grls.report.systems import ExperimentTable, SystemRun, compare_systems

MEASURES = ("nDCG@10", "R@5", "RR")
"""The default measures."""

_LEAST_K = 10  # as `grls retrieve`


class SearchesTexts(Protocol):
    """What an experiment needs of a system."""

    def search(self, queries: list[str], k: int) -> Sequence[Sequence[Any]]:
        """The hits of each text, best first.

        A hit is an id, a tuple that begins with one, or has one as ``id``.
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
    told_unknown(*joined, [corpus for corpus in corpora if isinstance(corpus, Corpus)], SOURCE)
    texts = [query.text for query in joined.queries]
    runs: dict[str, SystemRun] = {}
    for name, system in systems.items():
        search = system.rankings if isinstance(system, Searcher) else system.search
        search(texts[:1], depth)
        begun = time.perf_counter()
        results = list(search(texts, depth))
        seconds = (time.perf_counter() - begun) / len(texts)
        if len(results) != len(texts):
            raise DataError(
                f"the system {name!r} gave {counted(len(results), 'list')} of hits for "
                f"{counted(len(texts), 'query')}; expected one list a query, in their order."
            )
        pairs = zip(joined.queries, results, strict=True)
        rankings = {query.id: _ids(hits, f"{name!r}, query {query.id!r}", depth) for query, hits in pairs}
        values = query_values(measures, rankings, {q.id: joined.qrels[q.id] for q in joined.queries})
        runs[name] = SystemRun(values, seconds=seconds)
    rows = compare_systems({name: [run] for name, run in runs.items()}, baseline)
    return ExperimentTable(tuple(measures), rows, baseline, depth, len(texts))


def _ids(hits: Any, label: str, k: int) -> list[str]:
    """The ids of the first k hits, which are passages; checked."""
    if isinstance(hits, str) or not hasattr(hits, "__iter__"):
        raise DataError(f"the system {label}: expected a list of hits, got {short_repr(hits)}.")
    ids = []
    for hit in hits:
        first = hit[0] if isinstance(hit, tuple | list) and hit else hit
        ids.append(id_text(getattr(hit, "id", first), f"{label}, a hit", "the results of a system"))
    passages = [name for name in ids if name != DONE_ID][:k]
    if len(set(passages)) < len(passages):
        raise DataError(f"the system {label}: a passage is listed twice; a ranking holds each passage once.")
    return passages
