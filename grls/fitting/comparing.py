"""Ranking the queries of a run's splits with every system, in the time that there is.

Every system answers the same queries. Where time is limited, a few queries are timed first; if there is no
time for all queries, a random sample is ranked instead (its split is named for its size), and a system that
is too slow even for the least of them is left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import QRELS_HEADER, Qrels, read_split
from grls.data.filter_options import NO_FILTER
from grls.data.types import Query
from grls.fitting.folders import GENERATIVE
from grls.fitting.scoring import SplitGold
from grls.fitting.splits import TEST
from grls.fitting.work import FitWork
from grls.io.files import atomic_file
from grls.retrieve.base import Retriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.run import RetrieverRun

_TIMED = 4
"""Queries that are timed."""

_TIMING = 0.05
"""The share of the time that timing one system may take."""

_LEAST = 10
"""Queries of a split, at least, where there is no time for more."""


class Pace(NamedTuple):
    """How fast a system is.

    Attributes:
        opening: Seconds to open it.
        query: Seconds of a query.
    """

    opening: float
    query: float


def read_gold(work: FitWork, split: str) -> SplitGold:
    """The judged queries of a split of the run."""
    return SplitGold(split, *read_split(work.data, split))


def open_system(work: FitWork, system: str, precision: str) -> Retriever:
    """Open a system of the run."""
    return load_retriever(work.member(system), Opening(work.options.device, precision))


def timed(work: FitWork, system: str, queries: Sequence[Query], precision: str, seconds: float) -> Pace:
    """Time a system on a few queries; on one alone if that takes long.

    Args:
        work: The run.
        system: The system.
        queries: The queries.
        precision: Of its models.
        seconds: The time for all of the comparison.
    """
    depth, begun = work.options.depth, perf_counter()
    opened = open_system(work, system, precision)
    half = perf_counter()
    opened.retrieve(queries[:1], depth)
    opening, first = perf_counter() - begun, perf_counter() - half
    asked = list(queries[1 : 1 + _TIMED]) or list(queries[:1])
    if first * len(asked) > _TIMING * seconds:
        return Pace(opening, first)
    begun = perf_counter()
    opened.retrieve(asked, depth)
    return Pace(opening, (perf_counter() - begun) / len(asked))


class Share(NamedTuple):
    """What there is time for.

    Attributes:
        systems: The systems that are compared.
        counts: Split -> number of its queries.
    """

    systems: list[str]
    counts: dict[str, int]


def affordable(paces: dict[str, Pace], counts: dict[str, int], seconds: float) -> Share:
    """The systems and queries that a time is enough for.

    Args:
        paces: System -> how fast it is; the first one always stays.
        counts: Split -> number of its queries. Those of the report are left out first, down to as many as
            there are of all others.
        seconds: The time.
    """
    systems = list(paces)
    least = {split: min(count, _LEAST) for split, count in counts.items()}

    def needed(queries: int) -> float:
        return sum(paces[system].opening + paces[system].query * queries for system in systems)

    while len(systems) > 1 and needed(sum(least.values())) > seconds:
        # The generator is a part of the hybrid, which is worth more.
        systems.remove(max(systems[1:], key=lambda one: (one == GENERATIVE, paces[one].query)))
    each = sum(paces[system].query for system in systems)
    fits = int(max(0.0, seconds - needed(0)) / max(each, 1e-9))
    if fits >= sum(counts.values()):
        return Share(systems, dict(counts))
    reported = counts.get(TEST, 0)
    part = max(fits - reported, fits // 2) / max(1, sum(counts.values()) - reported)
    shared = {s: max(least[s], int(min(1.0, part) * n)) for s, n in counts.items() if s != TEST}
    if reported:
        shared[TEST] = max(least[TEST], min(reported, fits - sum(shared.values())))
    return Share(systems, shared)


def dropped(names: Sequence[str], paces: Mapping[str, Pace], kept: Sequence[str]) -> dict[str, str]:
    """System -> why there is no time to compare it.

    Args:
        names: The systems.
        paces: How fast they are, those that were timed.
        kept: Those that there is time for.
    """

    def why(name: str) -> str:
        if name not in paces:
            return "the time was up before it was timed"
        pace = paces[name]
        shown = f"{pace.opening:.0f} s to open it, {pace.query:.1f} s a query"
        return f"too slow for the time that was left ({shown})"

    return {name: why(name) for name in names if name not in kept}


def sampled_split(work: FitWork, split: str, count: int) -> str:
    """The name of a split with so many queries of another one, drawn at random; it is written."""
    queries, qrels = read_split(work.data, split)
    if count >= len(queries):
        return split
    name = f"{split}-{count}"
    drawn = set(random.Random(work.options.seed).sample([query.id for query in queries], count))
    _write_qrels(Path(work.data) / "qrels" / f"{name}.tsv", {q: qrels[q] for q in qrels if q in drawn})
    return name


def _write_qrels(file: Path, qrels: Qrels) -> None:
    with atomic_file(file) as stream:
        stream.write("\t".join(QRELS_HEADER) + "\n")
        for query, grades in qrels.items():
            stream.writelines(f"{query}\t{passage}\t{grade}\n" for passage, grade in grades.items())


def rank_splits(
    work: FitWork, system: str, splits: Sequence[str], corpus: Corpus, precision: str
) -> dict[str, int]:
    """Rank the queries of splits with a system; a killed run goes on.

    Returns:
        Split -> number of queries.
    """
    opened = open_system(work, system, precision)
    counts = {}
    for split in splits:
        queries, _ = read_split(work.data, split, corpus)
        depth, none = work.options.depth, [None] * len(queries)
        run = RetrieverRun(opened, queries, work.data, split, depth, False, none, NO_FILTER, precision)
        run.save(str(work.run(split, system)), system)
        counts[split] = len(queries)
    return counts
