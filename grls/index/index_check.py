"""Checks all invariants of an index on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grls.errors import GrlsError, IndexFormatError, out_of_memory
from grls.index.array import first_tokens, node_arrays
from grls.index.base import Segment
from grls.index.files import REBUILD
from grls.index.rows import Array, Ints, Rows, shared_prefixes, stored_lengths
from grls.index.storage import INDEX_MANIFEST, load_index

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

    Loading compares checksums, types and bounds. Here all is computed again: rows are sorted and
    distinct, each passage has one row, and the nodes are those of the rows. A check is left out if one
    that it builds on is broken. Memory: about 40 bytes a row.
    """
    path = Path(folder)
    opened: list[Segment] = []
    shared: list[Ints] = []
    load = partial(load_index, path, verify=True)
    checks = [attempt("files, checksums and sizes", path / INDEX_MANIFEST, lambda: opened.append(load()))]
    for index in opened:
        rows, in_order = index.rows, partial(_check_order, index.rows, path, shared)
        each = partial(_check_members, rows, path)
        checks.append(attempt("each passage has one row", path / "members.npy", each))
        checks.append(attempt("rows are sorted and distinct", path / "tokens.npy", in_order))
    for index, starts in zip(opened, shared, strict=False):
        nodes = partial(_check_backend, index, starts, path)
        checks.append(attempt(f"the arrays of {index.backend} are those of the rows", path, nodes))
    return checks


def _check_members(rows: Rows, path: Path) -> None:
    seen = np.zeros(len(rows.members), dtype=np.bool_)
    seen[rows.members] = True
    if not seen.all():
        missing = int(np.flatnonzero(~seen)[0])
        raise IndexFormatError(f"{path / 'members.npy'}: no row holds passage number {missing}; {REBUILD}")
    sizes = np.diff(rows.member_offsets.astype(np.int64))
    if (sizes < 1).any():
        raise IndexFormatError(f"{path / 'member_offsets.npy'}: a row holds no passage; {REBUILD}")
    firsts = np.zeros(len(rows.members), dtype=np.bool_)
    firsts[rows.members_before(np.arange(len(rows)))] = True
    falling = rows.members[1:] <= rows.members[:-1]
    if (falling & ~firsts[1:]).any():
        raise IndexFormatError(f"{path / 'members.npy'}: the passages of a row are in disorder; {REBUILD}")


def _check_order(rows: Rows, path: Path, known: list[Ints]) -> None:
    """Check the rows; appends to ``known`` the tokens that each row shares with the row before, ``[R]``."""
    file = path / "tokens.npy"
    starts = rows.offsets.all()
    shared = shared_prefixes(rows.tokens, starts)
    lengths = np.diff(starts)
    for start in range(1, len(rows), _AT_ONCE):
        numbers = np.arange(start, min(start + _AT_ONCE, len(rows)))
        differ_at = shared[numbers]
        if (differ_at >= np.minimum(lengths[numbers], lengths[numbers - 1])).any():
            raise IndexFormatError(f"{file}: a row is the beginning of the next one; {REBUILD}")
        if (rows.tokens[starts[numbers] + differ_at] <= rows.tokens[starts[numbers - 1] + differ_at]).any():
            raise IndexFormatError(f"{file}: the rows are not sorted; {REBUILD}")
    if rows.form == "whole" and int((rows.tokens == rows.end).sum()) != len(rows):
        raise IndexFormatError(f"{file}: the end token {rows.end} is inside a row; {REBUILD}")
    if rows.form == "prefixes" and not np.array_equal(lengths, stored_lengths(lengths, shared, 0, rows.form)):
        raise IndexFormatError(f"{file}: a row is longer than its unique prefix; {REBUILD}")
    known.append(shared)


def _check_backend(index: Segment, shared: Ints, path: Path) -> None:
    if index.backend == "array":
        _check_nodes(index.rows, index.arrays(), shared, path)
        return
    rebuilt = type(index).build(index.rows, shared)
    for name, array in rebuilt.arrays().items():
        if not np.array_equal(array, index.arrays()[name]):
            raise _other(path, name)


def _check_nodes(rows: Rows, stored: dict[str, Array], shared: Ints, path: Path) -> None:
    """Compare the nodes of ``array`` with those that the rows make."""
    ends = dict.fromkeys(stored, 0) | {"first_edges": 1}
    for arrays in node_arrays(len(rows), shared, partial(first_tokens, rows)):
        for name, array in arrays.items():
            start, ends[name] = ends[name], ends[name] + len(array)
            if not np.array_equal(stored[name][start : ends[name]], array):
                raise _other(path, name)
    if (ends["depths"], ends["edge_tokens"]) != (len(stored["depths"]), len(stored["edge_tokens"])):
        raise _other(path, "depths")


def _other(path: Path, name: str) -> IndexFormatError:
    return IndexFormatError(f"{path / name}.npy: it is not what the rows make; {REBUILD}")
