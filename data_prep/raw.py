"""Reads raw files of any size: one record at a time, compressed or not.

The functions keep no record after they have yielded it, so memory does not grow with the file. The module
knows tables, JSON, lines and compression, and no particular data set. Every error names the file and the
line, or the record in a file without useful lines.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from grls.errors import DataError
from grls.io.ending import needing
from grls.io.files import BOM, text_lines

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open}


def find_raw(folder: Path, name: str) -> Path:
    """``folder/name``, or the compressed file if only that exists."""
    for suffix in ("", *_OPENERS):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    return folder / name


@contextmanager
def open_raw(file: Path, expected: str) -> Iterator[IO[bytes]]:
    """Open a file as bytes, decompressed if its name ends in ``.gz`` or ``.bz2``."""
    if not file.is_file():
        raise DataError(f"no such file; expected {expected}.", file)
    opener: Any = _OPENERS.get(file.suffix, open)
    with opener(file, "rb") as stream:
        yield stream


def read_csv(
    file: Path, columns: Sequence[str], delimiter: str = ",", header: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, values of ``columns``) of a table whose values may stand in double quotes.

    Args:
        file: The file, compressed or not.
        columns: The required columns, with a value in every row. A table with a header may have them in any
            order, and further columns; a table without a header must have exactly these.
        delimiter: What separates the columns.
        header: Whether the first line names the columns.

    Raises:
        DataError: The file is missing, damaged or not UTF-8, lacks a column, or a row has more or fewer
            columns than the header or a blank value.
    """
    expected = f"a table with the columns {', '.join(columns)}"
    line = 0
    with _reading(file, expected, lambda: (line + 1, "")), open_raw(file, expected) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        rows = csv.reader(text, delimiter=delimiter)
        names = next(rows, []) if header else list(columns)
        line = rows.line_num
        missing = [column for column in columns if column not in names]
        if missing:
            raise DataError(f"the header lacks {', '.join(missing)}, got {names!r:.200}.", file, 1)
        indexes = [names.index(column) for column in columns]
        for row in rows:
            line = rows.line_num
            if len(row) != len(names):
                raise DataError(
                    f"expected {len(names)} columns ({', '.join(names)}), got {row!r:.120}.", file, line
                )
            values = [row[index] for index in indexes]
            for column, value in zip(columns, values, strict=True):
                if not value.strip():
                    raise DataError(f"the column {column!r} is blank.", file, line)
            yield line, values


def read_tsv(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, stripped fields) of a tab-separated file without a header.

    Raises:
        DataError: The file is missing, is not UTF-8, or a line does not have the columns, or has a blank one.
    """
    expected = f"{' and '.join([', '.join(columns[:-1]), columns[-1]])}, tab-separated"
    if not file.is_file():
        raise DataError(f"no such file; expected {expected}.", file)
    for line, text in text_lines(file):
        fields = [value.strip() for value in text.split("\t")]
        if len(fields) != len(columns) or not all(fields):
            raise DataError(f"expected {expected}, got {fields!r:.120}.", file, line)
        yield line, fields


def read_lines(file: Path, expected: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text without the line end) of a text file of any other format, compressed or not.

    Raises:
        DataError: The file is missing, damaged or not UTF-8.
    """
    line = 0
    with _reading(file, expected, lambda: (line + 1, "")), open_raw(file, expected) as stream:
        for number, raw in enumerate(stream, 1):
            text = (raw.removeprefix(BOM) if number == 1 else raw).decode("utf-8")
            line = number
            yield line, text.removesuffix("\n").removesuffix("\r")


def read_json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a file with one JSON object a line, compressed or not.

    Raises:
        DataError: The file is missing or damaged, or a line is no JSON object.
    """
    line = 0
    expected = "one JSON object a line"
    with _reading(file, expected, lambda: (line + 1, "")), open_raw(file, expected) as stream:
        for line, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                record = json.loads(text.decode("utf-8"))
                if rb"\u" in text:
                    json.dumps(record, ensure_ascii=False).encode()  # refuses lone surrogates
            except (ValueError, RecursionError) as error:
                raise DataError(f"expected a JSON object ({error}).", file, line) from None
            if not isinstance(record, dict):
                raise DataError(f"expected a JSON object, got {type(record).__name__}.", file, line)
            yield line, record


def read_json_list(file: Path, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("record n", object) of a JSON list of objects, without holding the whole list.

    Args:
        file: The file, compressed or not.
        key: The key of the list in the outermost object; empty if the list itself is outermost.

    Raises:
        DataError: The file is missing, damaged, no such JSON, or holds no record.
        ConfigError: The package ijson is not installed.
    """
    expected = f"a JSON list of objects{f' under {key!r}' if key else ''}"
    prefix = f"{key}.item" if key else "item"
    for number, record in enumerate(_parse(file, "items", prefix, expected), 1):
        if not isinstance(record, dict):
            raise DataError(f"record {number}: expected a JSON object, got {record!r:.80}.", file)
        yield f"record {number}", record


def read_json_object(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, object) of a JSON object whose values are objects, without holding the whole object.

    Raises:
        DataError: The file is missing, damaged, no such JSON, or holds no record.
        ConfigError: The package ijson is not installed.
    """
    for name, record in _parse(file, "kvitems", "", "a JSON object whose values are objects"):
        if not isinstance(record, dict):
            raise DataError(f"record {name!r}: expected a JSON object, got {record!r:.80}.", file)
        yield name, record


def read_parquet(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("row n", values of ``columns``) of a Parquet file, some rows at a time.

    Raises:
        DataError: The file is missing, damaged, or lacks a column.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    expected = f"a Parquet file with the columns {', '.join(columns)}"
    with open_raw(file, expected) as stream:
        try:
            table = ParquetFile(stream)
            if missing := [column for column in columns if column not in table.schema_arrow.names]:
                raise DataError(f"expected {expected}; it lacks {', '.join(missing)}.", file)
            batches = table.iter_batches(1000, columns=list(columns))
            for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
                yield f"row {number}", row
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"expected {expected} ({error}); fetch the file again.", file) from None


def _parse(file: Path, function: str, prefix: str, expected: str) -> Iterator[Any]:
    with needing("releases", f"{file} is read one record at a time, which"):
        ijson: Any = import_module("ijson")  # imported here, because only the full releases need it
    number = 0
    with (
        _reading(file, expected, lambda: (None, f"record {number + 1}: ")),
        open_raw(file, expected) as stream,
    ):
        try:
            for item in getattr(ijson, function)(stream, prefix, use_float=True):
                number += 1
                yield item
        except ijson.JSONError as error:
            reason = " ".join(str(error).split())
            raise DataError(f"record {number + 1}: expected {expected} ({reason}).", file) from None
    if not number:
        raise DataError(f"expected {expected}, found no record.", file)


@contextmanager
def _reading(file: Path, expected: str, reached: Callable[[], tuple[int | None, str]]) -> Iterator[None]:
    """Turn exceptions of a damaged file into an error that names the line, or the record, reached."""
    try:
        yield
    except (EOFError, zlib.error, OSError, UnicodeDecodeError, csv.Error) as error:
        # gzip and bz2 raise an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        line, record = reached()
        raise DataError(f"{record}expected {expected} ({error}); fetch the file again.", file, line) from None
