"""Checks all invariants of an index on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grls.errors import GrlsError, IndexFormatError, out_of_memory
from grls.index.base import Segment
from grls.index.build import index_stream
from grls.index.files import REBUILD
from grls.index.options import IndexOptions, memory_bytes
from grls.index.rows import Rows, Sequences, gather
from grls.index.storage import INDEX_MANIFEST, load_index, stored_arrays

_AT_ONCE = 1 << 20


class PartCheck(NamedTuple):
    """What was checked of a file or folder, and its fault with the remedy, if there is one."""

    what: str
    file: Path
    fault: str = ""


def attempt(name: str, file: Path, check: Callable[[], object]) -> PartCheck:
    """Run a check; any error is its fault: only a broken file can cause it here."""
    try:
        check()
    except GrlsError as error:
        return PartCheck(name, file, str(error))
    except Exception as error:
        if out_of_memory(error):
            raise
        return PartCheck(name, file, f"{file}: {type(error).__name__}: {error}; {REBUILD}")
    return PartCheck(name, file)


def check_index(folder: str | Path) -> list[PartCheck]:
    """Check all invariants of the index in a folder, as Lucene's CheckIndex does.

    Loading compares checksums, types and bounds. Then the index is built again from its own rows, as `grls
    index` builds it, on disk if it is large: every array must be the same.
    """
    path = Path(folder)
    opened: list[Segment] = []
    load = partial(load_index, path, verify=True)
    checks = [attempt("files, checksums and sizes", path / INDEX_MANIFEST, lambda: opened.append(load()))]
    for index in opened:
        same = partial(_refuse_other, index, path)
        checks.append(attempt("built again from its rows, it is the same", path / "tokens.npy", same))
    return checks


def _refuse_other(index: Segment, path: Path) -> None:
    rows = index.rows
    if not np.array_equal(np.sort(rows.members), np.arange(len(rows.members))):
        raise IndexFormatError(f"{path / 'members.npy'}: not every passage has one row; {REBUILD}")
    memory = memory_bytes(IndexOptions().memory)
    again = index_stream(_passages(rows), rows.end, index.backend, rows.form, memory)
    stored = stored_arrays(index)
    for name, array in stored_arrays(again).items():
        if not np.array_equal(stored[name], array):
            raise IndexFormatError(f"{path / name}.npy: it is not what the rows make; {REBUILD}")


def _passages(rows: Rows) -> Iterator[Sequences]:
    """The stored tokens of all passages in order, with the end token behind a unique prefix."""
    starts, lengths = rows.offsets.all(), rows.lengths()
    for first in range(0, len(rows.members), _AT_ONCE):
        numbers = rows.row_of[first : first + _AT_ONCE]
        offsets = np.concatenate(([0], np.cumsum(lengths[numbers])))
        tokens = gather(rows.tokens, starts[numbers], offsets)
        cut = tokens[offsets[1:] - 1] != rows.end
        ended = np.insert(tokens, offsets[1:][cut], rows.end)
        yield Sequences(ended, offsets + np.concatenate(([0], np.cumsum(cut))))
