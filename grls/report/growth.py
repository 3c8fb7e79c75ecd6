"""What a corpus that grows without training does to a retriever.

It grows in the order of its file, in equal parts, by :func:`~grls.retrieve.update.update_folder`. A query
takes part as soon as all its gold passages have arrived. Forgetting is what the queries of earlier parts have
lost since then, also because a larger corpus is harder to search.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from statistics import fmean
from time import perf_counter

import numpy as np

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, passage_queries
from grls.data.types import Query
from grls.errors import ConfigError
from grls.evaluation.measures import query_values
from grls.io.progress import counted
from grls.report.blocks import NONE, Cell, Table
from grls.retrieve.base import Retriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.run import retrieve_results
from grls.retrieve.update import Changes, update_folder


def measure_by_query(
    retriever: Retriever, queries: Sequence[Query], qrels: Qrels, measure: str, k: int, own: Set[str]
) -> dict[str, float]:
    results = retrieve_results(retriever, queries, k, [None] * len(queries), own) if queries else []
    rankings = {result.query_id: [hit.id for hit in result.hits] for result in results}
    judged = {q.id: qrels[q.id] for q in queries}
    return dict(zip(judged, query_values([measure], rankings, judged).get(measure, ()), strict=True))


def grow(
    folder: str | Path,
    corpus: Corpus,
    queries: Sequence[Query],
    qrels: Qrels,
    parts: int,
    measure: str,
    k: int,
    place: Path,
    opening: Opening,
) -> list[tuple[Cell, ...]]:
    """Let the corpus of a retriever folder arrive in parts; returns a row for each step.

    The last step removes the last part again. ``place``: an empty folder for the folders of the steps.
    """
    if len(corpus) < parts:
        raise ConfigError(
            f"{counted(len(corpus), 'passage')} cannot arrive in {parts} parts: give fewer parts."
        )
    slices = [part.tolist() for part in np.array_split(np.arange(len(corpus)), parts)]
    ends = [part[-1] for part in slices]
    rest = corpus.ids([number for part in slices[1:] for number in part])
    removed = set(corpus.ids(slices[-1]))
    changes = [
        Changes(remove=rest, device=opening.device),
        *(Changes(add=corpus.select(part), device=opening.device) for part in slices[1:]),
        Changes(remove=sorted(removed), device=opening.device),
    ]
    own = passage_queries(queries, qrels, corpus)
    arrival: dict[str, int] = {}  # query -> the step with which its last gold passage arrives
    for query in queries:
        numbers = [number for number in corpus.numbers(gold_passages(query, qrels)) if number is not None]
        if numbers:
            arrival[query.id] = int(np.searchsorted(ends, max(numbers))) + 1
    first: dict[str, float] = {}  # query -> its value in that step
    rows = []
    before = Path(folder)
    for step, change in enumerate(changes, 1):
        current, begun = place / f"{step}", perf_counter()
        update_folder(before, current, change)
        seconds = perf_counter() - begun
        if step > 1:
            shutil.rmtree(before)
        before, retriever = current, load_retriever(current, opening)
        here = step if step <= parts else parts - 1  # the queries of the last part have lost their gold
        arrived = [query for query in queries if query.id in arrival and arrival[query.id] <= here]
        values = measure_by_query(retriever, arrived, qrels, measure, k, own)
        new = {query: value for query, value in values.items() if arrival[query] == step}
        old = {query: value for query, value in values.items() if arrival[query] < step}
        gone = NONE
        if step > parts:
            results = retrieve_results(retriever, queries, k, [None] * len(queries))
            gone = f"{sum(hit.id in removed for result in results for hit in result.hits):,}"
        means = [
            f"{100 * fmean(part):.1f}" if part else NONE
            for part in ([*old.values()], [first[q] - value for q, value in old.items()], [*new.values()])
        ]
        label = f"{step} of {parts}" if step <= parts else "the last part removed"
        cells = (label, f"{ends[here - 1] + 1:,}", f"{len(old):,}", *means[:2], f"{len(new):,}", means[2])
        rows.append((*map(Cell, cells), Cell(f"{seconds:.1f}" if step > 1 else NONE), Cell(gone)))
        first |= new
    return rows


def growth_table(rows: Mapping[str, Sequence[tuple[Cell, ...]]], measure: str) -> Table:
    heads = (
        "retriever", "step", "passages", "queries, old", f"{measure}, old", "forgetting", "queries, new",
        f"{measure}, new", "seconds of update", "hits of removed",
    )  # fmt: skip
    return Table(
        "growth",
        f"A corpus that grows without training: {measure} in points",
        heads,
        2,
        tuple((Cell(name), *row) for name, steps in rows.items() for row in steps),
        "New: queries whose last gold passage came with the step; old: those of earlier steps. Forgetting: "
        "what the old ones found when they were new, less what they find now, also because there is more to "
        "search.",
    )
