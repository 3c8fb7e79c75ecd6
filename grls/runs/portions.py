"""Retrieval portion by portion: results are on disk as they come, so that a killed run goes on.

The results of all portions stand in ``OUTPUT.retrieved.jsonl`` (:mod:`grls.io.resumable`) until the run is
saved from it, query by query, so memory does not grow with the queries. A run of one portion needs no such
file. The module does not know how a query is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from grls.data.types import Chain, Hit, Query
from grls.errors import DataError
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile, Record, read_jsonl, write_line
from grls.runs.results import Retrieved
from grls.runs.trec import chain_ranking

PORTION = 512
"""Queries between two points where a run can go on."""


class Kept(Protocol):
    """What results stand in until their run is saved."""

    def remove(self) -> None:
        """Delete it."""


class Portions(NamedTuple):
    """The results of all portions.

    Attributes:
        retrieved: For each query, in their order; can be walked again and again.
        seconds: Wall-clock seconds that it took, those of an earlier, killed run included.
        file: What they stand in; None where they are in memory.
    """

    retrieved: Iterable[Retrieved]
    seconds: float
    file: Kept | None


class KeptResults:
    """The results in a file, read anew whenever they are walked.

    Args:
        file: A record a query, in their order; more may follow.
        queries: The queries.
        read: The results of a query by its record; None: as :func:`in_portions` keeps them.
    """

    def __init__(
        self,
        file: GrowingFile,
        queries: Sequence[Query],
        read: Callable[[str, Record], Retrieved] | None = None,
    ):
        self._file = file
        self._queries = queries
        self._read = read or _retrieved

    def __iter__(self) -> Iterator[Retrieved]:
        records = islice(self._file.each(), len(self._queries))
        for query, record in zip(self._queries, records, strict=True):
            try:
                one = self._read(query.id, record)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"the record of query {query.id!r} is damaged ({error!r}): remove the file, and run the "
                    "command again.",
                    self._file.path,
                ) from None
            yield one


class FiledResults:
    """The results in the files of shards, read anew whenever they are walked.

    Args:
        files: Files of :func:`write_retrieved`, in the order of the queries.
        queries: The queries.
    """

    def __init__(self, files: Sequence[Path], queries: Sequence[Query]):
        self._files = files
        self._queries = queries

    def __iter__(self) -> Iterator[Retrieved]:
        records = (record for file in self._files for _, record in read_jsonl(file))
        for query, record in zip(self._queries, records, strict=True):
            yield _retrieved(query.id, record)


def write_retrieved(retrieved: Iterable[Retrieved], file: Path) -> None:
    """Write results to a file that :class:`FiledResults` reads, a query a line."""
    with file.open("w", encoding="utf-8") as stream:
        for one in retrieved:
            write_line(stream, _record(one))


def in_portions(
    output: str,
    settings: Callable[[], dict[str, Any]],
    queries: Sequence[Query],
    retrieve: Callable[[slice], list[Retrieved]],
    size: int | None = None,
) -> Portions:
    """Retrieve for all queries, and go on where a killed run of the same settings stopped.

    Args:
        output: Path of the results without ending.
        settings: What the results depend on, as JSON values.
        queries: All queries.
        retrieve: The results of a stretch of them.
        size: Queries a portion; None: ``PORTION``.
    """
    size = PORTION if size is None else size
    path = Path(f"{output}.retrieved.jsonl")
    begun = perf_counter()
    if len(queries) <= size and not path.exists():
        retrieved = retrieve(slice(0, len(queries)))
        return Portions(retrieved, perf_counter() - begun, None)
    file = GrowingFile(path, settings(), lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in queries))
    with Progress(len(queries), "retrieve", "queries", file.count) as bar:
        for first in range(file.count, len(queries), size):
            end = min(first + size, len(queries))
            records = [_record(one) for one in retrieve(slice(first, end))]
            now = perf_counter()
            records[-1]["seconds"], begun = now - begun, now
            file.add(records)
            bar.update(end - first)
    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    return Portions(KeptResults(file, queries), seconds, file)


def _record(one: Retrieved) -> Record:
    """Hits are left out where the chain says them."""
    record: Record = {"query_id": one.query_id}
    if one.chain is None or one.hits != chain_ranking(one.chain):
        record["hits"] = [[hit.id, float(hit.score)] for hit in one.hits]
    if one.chain is not None:
        hops = [[hit.id, float(hit.score)] for hit in one.chain.hits]
        record["chain"] = {"hops": hops, "score": float(one.chain.score), "done": bool(one.chain.done)}
    return record


def _retrieved(query_id: str, record: Record) -> Retrieved:
    hits = _hits(record["hits"]) if "hits" in record else None
    if "chain" in record:
        said = record["chain"]
        chain = Chain(tuple(_hits(said["hops"])), said["score"], said["done"])
        return Retrieved.chained(query_id, chain, hits)
    return Retrieved.ranked(query_id, hits or ())


def _hits(pairs: Sequence[Sequence[Any]]) -> list[Hit]:
    return [Hit(name, score) for name, score in pairs]
