"""The Arrow table of a ``corpus.jsonl``, one row per passage.

The table of a small file is in memory. That of a larger file is memory-mapped in the cache of ``datasets``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grls.data.inputs.tables import CORPUS_FORM, in_layout
from grls.data.types import Passage
from grls.errors import DataError
from grls.io.files import atomic_folder, read_json, sha256, write_json
from grls.io.jsonl import object_of, read_jsonl, string_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("_id", "title", "text", "metadata")
"""The columns of the table; all are strings."""

BATCH = 10_000
"""How many passages are read together."""

IN_MEMORY_BYTES = 256 * 2**20
"""The largest file whose table is in memory."""

_CACHE = "cache.json"

Facts = dict[str, str]
"""What takes long to find in a table: the fingerprints of its ``texts`` and its ``metadata``."""


class PassageTable:
    """The rows of parts in order: tables in memory, or Arrow files, which are mapped and may be large."""

    def __init__(self, *parts: pa.Table | Path):
        import pyarrow as pa

        tables = list(parts)
        for number, part in enumerate(parts):
            if isinstance(part, Path):
                tables[number] = pa.ipc.open_stream(pa.memory_map(os.fspath(part))).read_all()
        self.parts = parts
        self.data = pa.concat_tables(tables)
        self._batches = self.data.to_batches()
        self._starts = np.cumsum([0, *map(len, self._batches)])[:-1]

    def __reduce__(self) -> tuple[type[PassageTable], tuple[pa.Table | Path, ...]]:
        """Another process maps the files itself; batches are views, so they do not travel."""
        return PassageTable, self.parts

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __getitem__(self, rows: list[int] | slice) -> dict[str, list[str]]:
        import pyarrow as pa

        if isinstance(rows, slice):
            start, end, _ = rows.indices(len(self))
            part = self.data.slice(start, max(0, end - start))
        else:
            if len(rows) and not -len(self) <= min(rows) <= max(rows) < len(self):
                raise IndexError(f"expected numbers of {len(self)} rows, got {rows}")
            numbers = np.asarray(rows, dtype=np.int64) % max(1, len(self))
            batches = np.searchsorted(self._starts, numbers, side="right") - 1
            slices = [  # a slice for each row: `pa.Table.take` copies the whole column before it looks
                self._batches[batch].slice(number - self._starts[batch], 1)
                for batch, number in zip(batches, numbers, strict=True)
            ]
            part = pa.Table.from_batches(slices, self.data.schema)
        columns: dict[str, list[str]] = part.to_pydict()
        return columns


def cache_folder() -> Path:
    """The cache of ``datasets``, without importing it, which takes most of a second."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(os.environ.get("HF_DATASETS_CACHE") or f"{home}/datasets").expanduser() / "grls"


def read_table(file: Path) -> tuple[PassageTable, Facts]:
    """The passages of a file, whose ids differ; the table of a large file, and its facts, are in the cache.

    It is written again if the file or the Arrow file has changed. The state of the file includes its inode
    and the time of its last status change, which a copy does not keep. The checksum covers every byte of the
    Arrow file, because damage would change texts or end the process.
    """
    import pyarrow as pa

    stat = file.stat()
    if stat.st_size <= IN_MEMORY_BYTES:
        table = PassageTable(pa.Table.from_batches(_passage_batches(file), schema()))
        _refuse_repeated_ids(table, file)
        return table, {}
    path = str(file.resolve())
    state = [path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    folder = cache_folder() / hashlib.sha256(path.encode()).hexdigest()[:32]
    arrow = folder / "corpus.arrow"
    with contextlib.suppress(DataError, OSError, LookupError, TypeError):  # there is no complete cache
        known = read_json(folder / _CACHE)
        if known["state"] == state and known["sha256"] == sha256(arrow):
            return PassageTable(arrow), known["facts"]
    with atomic_folder(folder, "") as new:
        with (
            pa.OSFile(os.fspath(new / arrow.name), "wb") as sink,
            pa.ipc.new_stream(sink, schema()) as writer,
        ):
            for batch in _passage_batches(file):
                writer.write_batch(batch)
        table = PassageTable(new / arrow.name)
        _refuse_repeated_ids(table, file)
        facts = {"texts": texts_fingerprint(table), "metadata": metadata_fingerprint(table)}
        write_json(new / _CACHE, {"state": state, "sha256": sha256(new / arrow.name), "facts": facts})
    return PassageTable(arrow), facts


def _refuse_repeated_ids(table: PassageTable, file: Path) -> None:
    import pyarrow.compute as pc

    if pc.count_distinct(table.data.column("_id")).as_py() == len(table):
        return
    first: dict[str, int] = {}
    for line, record in read_passages(file):
        if record["_id"] in first:
            raise DataError(
                f"the id {record['_id']!r} is in line {first[record['_id']]} already; "
                "every passage needs a different id.",
                file,
                line,
            )
        first[record["_id"]] = line
    raise DataError("the file has changed while it was read; run the command again.", file)


def passage_batches(table: PassageTable, size: int = BATCH) -> Iterator[list[Passage]]:
    """All passages in order, ``size`` at a time."""
    for start in range(0, len(table), size):
        yield as_passages(table[start : start + size])


def as_passages(rows: dict[str, list[str]]) -> list[Passage]:
    return list(map(Passage, rows["_id"], rows["text"], rows["title"]))


def metadata_texts(table: PassageTable) -> Iterator[list[str]]:
    """The metadata of all passages as JSON texts, in batches."""
    column = table.data.column("metadata")
    for start in range(0, len(table), BATCH):
        yield column.slice(start, BATCH).to_pylist()


def texts_fingerprint(table: PassageTable) -> str:
    return _digest(json.dumps(batch, ensure_ascii=False) for batch in passage_batches(table))


def metadata_fingerprint(table: PassageTable) -> str:
    return _digest(map(json.dumps, metadata_texts(table)))


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def table_of(rows: Sequence[tuple[str, ...]]) -> PassageTable:
    """Rows have id, title, text, and metadata as JSON."""
    import pyarrow as pa

    columns = list(map(arrow_strings, zip(*rows, strict=True)))
    columns = columns or [arrow_strings([])] * len(COLUMNS)
    return PassageTable(pa.Table.from_arrays(columns, schema=schema()))


@cache
def schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.large_string()) for name in COLUMNS])


def read_passages(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Lines with their numbers, in BEIR's layout."""
    return ((line, in_layout(record, CORPUS_FORM, file, line)) for line, record in read_jsonl(file))


def _passage_batches(file: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    columns: list[list[str]] = [[], [], [], []]
    for line, record in read_passages(file):
        values = (
            string_of(record, "_id", file, line),
            string_of(record, "title", file, line, default=""),
            string_of(record, "text", file, line, empty=True),
            json.dumps(object_of(record, "metadata", file, line), ensure_ascii=False),
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        if len(columns[0]) == BATCH:
            yield pa.RecordBatch.from_arrays(list(map(arrow_strings, columns)), schema=schema())
            columns = [[], [], [], []]
    if columns[0]:
        yield pa.RecordBatch.from_arrays(list(map(arrow_strings, columns)), schema=schema())


def arrow_strings(values: Sequence[str]) -> pa.LargeStringArray:
    """Texts as an Arrow array. ``pa.array`` imports pandas, which takes longer than a search by BM25."""
    import pyarrow as pa

    encoded = list(map(str.encode, values))
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def arrow_numbers(numbers: Sequence[int]) -> pa.Int64Array:
    import pyarrow as pa

    values = np.asarray(numbers, dtype=np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
