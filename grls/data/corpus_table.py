"""The Arrow table of a ``corpus.jsonl``, one row per passage.

The table of a small file is in memory. The table of a larger file is memory-mapped from a file in the cache
of ``datasets``, so a corpus may be larger than memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grls.errors import DataError, WriteError
from grls.io.files import atomic_folder, read_json, sha256, write_json
from grls.io.jsonl import object_of, read_jsonl, string_of

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

COLUMNS = ("_id", "title", "text", "metadata")
"""The columns of the table; all are strings."""

BATCH = 10_000
"""How many passages are read together."""

IN_MEMORY_BYTES = 256 * 2**20
"""The largest file whose table is in memory."""

_CACHE = "cache.json"
_FACTS = "facts.json"


class CachedFacts:
    """Facts of a cached corpus that take long to find: kept beside its Arrow file, and valid for it alone.

    Args:
        folder: The folder of the cache; None: the corpus is in memory, and nothing is kept.
    """

    def __init__(self, folder: Path | None = None):
        self._file = None if folder is None else folder / _FACTS
        self._sum = None if folder is None else read_json(folder / _CACHE)["sha256"]

    def get(self, name: str, find: Callable[[], str]) -> str:
        """A fact; it is found and kept if it is not known yet.

        Args:
            name: The name of the fact.
            find: Finds it.
        """
        if self._file is None:
            return find()
        known = self._read(self._file)
        if isinstance(known.get(name), str):
            return str(known[name])
        value = find()
        with contextlib.suppress(WriteError):  # a cache that cannot be written
            write_json(self._file, {**self._read(self._file), name: value})
        return value

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            known = read_json(file)
        except DataError:
            known = None
        good = isinstance(known, dict) and known.get("sha256") == self._sum
        kept: dict[str, Any] = known if good else {"sha256": self._sum}
        return kept


def read_table(file: Path) -> tuple[datasets.Dataset, CachedFacts]:
    """The table of the passages in a file, and its facts.

    Raises:
        DataError: A line is malformed.
    """
    import datasets
    import pyarrow as pa

    batches = _passage_batches(file)
    if file.stat().st_size <= IN_MEMORY_BYTES:
        table = pa.Table.from_batches(batches, schema())
        return datasets.Dataset(datasets.table.InMemoryTable(table)), CachedFacts()
    arrow = _cached_arrow(file, batches)
    return datasets.Dataset.from_file(str(arrow)), CachedFacts(arrow.parent)


def table_of(rows: Sequence[tuple[str, ...]]) -> datasets.Dataset:
    """A table in memory.

    Args:
        rows: For each passage: id, title, text, and metadata as JSON.
    """
    import datasets
    import pyarrow as pa

    columns = [pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)]
    columns = columns or [pa.array([], pa.large_string())] * len(COLUMNS)
    return datasets.Dataset(datasets.table.InMemoryTable(pa.Table.from_arrays(columns, schema=schema())))


@cache
def schema() -> pa.Schema:
    """The columns of the table."""
    import pyarrow as pa

    return pa.schema([(name, pa.large_string()) for name in COLUMNS])


def _passage_batches(file: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    columns: list[list[str]] = [[], [], [], []]
    for line, record in read_jsonl(file):
        values = (
            string_of(record, "_id", file, line),
            string_of(record, "title", file, line, default=""),
            string_of(record, "text", file, line, empty=True),
            json.dumps(object_of(record, "metadata", file, line), ensure_ascii=False),
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        if len(columns[0]) == BATCH:
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, pa.large_string()) for c in columns], schema=schema()
            )
            columns = [[], [], [], []]
    if columns[0]:
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.large_string()) for c in columns], schema=schema())


def _cached_arrow(file: Path, batches: Iterator[pa.RecordBatch]) -> Path:
    """An Arrow file with the passages of ``file``; it is made again if either file has changed.

    The state of ``file`` includes its inode and the time of its last status change, which a copy does not
    keep. So a replacement with the same size and date has another state. The checksum of the Arrow file
    covers every byte, because damage would change texts or end the process.
    """
    import datasets
    import pyarrow as pa

    stat = file.stat()
    state: list[Any] = [
        str(file.resolve()),
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
        stat.st_ino,
    ]
    name = hashlib.sha256(state[0].encode()).hexdigest()[:32]
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "grls" / name
    arrow = folder / "corpus.arrow"
    if _is_cache_of(folder, arrow, state):
        return arrow
    with atomic_folder(folder, "") as new:
        with (
            pa.OSFile(os.fspath(new / arrow.name), "wb") as sink,
            pa.ipc.new_stream(sink, schema()) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        write_json(new / _CACHE, {"state": state, "sha256": sha256(new / arrow.name)})
    _remove_earlier(folder.parent, state)
    return arrow


def _remove_earlier(caches: Path, state: list[Any]) -> None:
    """Remove the cache of this file from an earlier version, whose name depended on size and date."""
    name = hashlib.sha256(json.dumps(state[:3]).encode()).hexdigest()[:32]
    folder = caches / name
    if folder.is_dir() and [file.name for file in folder.iterdir()] == ["corpus.arrow"]:
        shutil.rmtree(folder, ignore_errors=True)


def _is_cache_of(folder: Path, arrow: Path, state: list[Any]) -> bool:
    """Whether a folder holds a complete Arrow file of the corpus in this state."""
    try:
        kept = read_json(folder / _CACHE)
        return isinstance(kept, dict) and kept.get("state") == state and kept.get("sha256") == sha256(arrow)
    except (DataError, OSError):
        return False
