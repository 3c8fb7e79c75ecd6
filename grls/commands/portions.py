"""Retrieval portion by portion: what is found is on disk as it comes, so that a killed run goes on.

What all portions found stands in ``OUTPUT.retrieved.jsonl`` (:mod:`grls.io.resumable`) until the results are
written from it, portion by portion, too: memory does not grow with the queries. A run of one portion needs no
such file. The module does not know how a query is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from grls.commands.output import Outcome
from grls.data.types import Chain, Hit, Query
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile, Record

PORTION = 512
"""Queries between two points where a run can go on."""


class Retrieved(NamedTuple):
    """What a run has found.

    Attributes:
        parts: The queries of each portion and their outcome, in order; can be walked again and again.
        seconds: Wall-clock seconds that it took, those of an earlier, killed run included.
        file: What it stands in; None where it is in memory.
    """

    parts: Sequence[tuple[Sequence[Query], Outcome]] | KeptParts
    seconds: float
    file: GrowingFile | None


class KeptParts:
    """The portions of a file, read anew whenever they are walked.

    Args:
        file: A record a query, in their order; more may follow.
        queries: The queries.
        size: Queries a portion.
        outcome: What was retrieved, by the records of a portion; None: as :func:`in_portions` keeps it.
    """

    def __init__(
        self,
        file: GrowingFile,
        queries: Sequence[Query],
        size: int,
        outcome: Callable[[Sequence[Record]], Outcome] | None = None,
    ):
        self._file = file
        self._queries = queries
        self._size = size
        self._outcome = outcome or _outcome

    def __iter__(self) -> Iterator[tuple[Sequence[Query], Outcome]]:
        records = self._file.each()
        for first in range(0, len(self._queries), self._size):
            some = self._queries[first : first + self._size]
            yield some, self._outcome([next(records) for _ in some])


def in_portions(
    output: str,
    settings: Callable[[], dict[str, Any]],
    queries: Sequence[Query],
    retrieve: Callable[[slice], Outcome],
    size: int | None = None,
) -> Retrieved:
    """Retrieve for all queries, and go on where a killed run of the same settings stopped.

    Args:
        output: Path of the results without ending.
        settings: What the results depend on, as JSON values.
        queries: All queries.
        retrieve: What is found for a stretch of them.
        size: Queries a portion; None: ``PORTION``.
    """
    size = PORTION if size is None else size
    path = Path(f"{output}.retrieved.jsonl")
    begun = perf_counter()
    if len(queries) <= size and not path.exists():
        found = [(queries, retrieve(slice(0, len(queries))))]
        return Retrieved(found, perf_counter() - begun, None)
    file = GrowingFile(path, settings(), lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in queries))
    with Progress(len(queries), "retrieve", "queries", file.count) as bar:
        for first in range(file.count, len(queries), size):
            some = queries[first : first + size]
            records = _records(some, retrieve(slice(first, first + len(some))))
            now = perf_counter()
            records[-1]["seconds"], begun = now - begun, now
            file.add(records)
            bar.update(len(some))
    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    return Retrieved(KeptParts(file, queries, size), seconds, file)


def _records(queries: Sequence[Query], outcome: Outcome) -> list[Record]:
    records: list[Record] = [{"query_id": query.id} for query in queries]
    for record, hits in zip(records, outcome.rankings or (), strict=False):
        record["hits"] = [[hit.id, float(hit.score)] for hit in hits]
    for record, chain in zip(records, outcome.chains or (), strict=False):
        hops = [[hit.id, float(hit.score)] for hit in chain.hits]
        record["chain"] = {"hops": hops, "score": float(chain.score), "done": bool(chain.done)}
    return records


def _outcome(records: Sequence[Record]) -> Outcome:
    rankings = [_hits(record["hits"]) for record in records] if "hits" in records[0] else None
    chains = [_chain(record["chain"]) for record in records] if "chain" in records[0] else None
    return Outcome(rankings, chains)


def _hits(pairs: Sequence[Sequence[Any]]) -> list[Hit]:
    return [Hit(name, score) for name, score in pairs]


def _chain(record: Record) -> Chain:
    return Chain(tuple(_hits(record["hops"])), record["score"], record["done"])
