"""Checks every invariant of an index on disk, as Lucene's CheckIndex does, and reports each.

Legend: N passages, R rows, M branching nodes.

Loading compares checksums, types and bounds. This module recomputes: the rows must be sorted and distinct,
each passage must have one row, and the nodes must be those that the rows make. So it also finds what a
checksum cannot, an index that was written wrongly. Memory: about 40 bytes a row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grls.errors import GrlsError, IndexFormatError, out_of_memory
from grls.index.array import branches, number_children
from grls.index.array_files import REBUILD
from grls.index.base import Segment
from grls.index.rows import Array, Ints, Rows, kept_lengths, shared_prefixes
from grls.index.storage import MANIFEST, load_index

_AT_ONCE = 1 << 20


class PartCheck(NamedTuple):
    """One check of a folder.

    Attributes:
        what: What was checked, as a text.
        file: The file or folder that was looked at.
        fault: What is wrong, with the file and the remedy; empty: it is as it should be.
    """

    what: str
    file: Path
    fault: str = ""


def attempt(what: str, file: Path, check: Callable[[], object]) -> PartCheck:
    """Run a check, whose errors are the faults.

    An error of another library is a fault, too: only a broken file can cause it here.

    Raises:
        MemoryError: There is too little memory to check, which says nothing of the file.
    """
    try:
        check()
    except GrlsError as error:
        return PartCheck(what, file, str(error))
    except Exception as error:
        if out_of_memory(error):
            raise
        return PartCheck(what, file, f"{file}: {type(error).__name__}: {error}; {REBUILD}")
    return PartCheck(what, file)


def check_index(folder: str | Path) -> list[PartCheck]:
    """Check all invariants of one index.

    Args:
        folder: The folder of the index, with its ``index.json``.

    Returns:
        The checks in order. After a broken one that others build on, those are left out.
    """
    path = Path(folder)
    opened: list[Segment] = []
    checks = [
        attempt(
            "files, checksums and sizes",
            path / MANIFEST,
            lambda: opened.append(load_index(path, verify=True)),
        )
    ]
    for index in opened:
        rows, shared = index.rows, list[Ints]()
        members, tokens = path / "members.npy", path / "tokens.npy"
        checks.append(attempt("each passage has one row", members, partial(_check_members, rows, path)))
        in_order = partial(_check_order, rows, path, shared)
        checks.append(attempt("rows are sorted and distinct", tokens, in_order))
        if shared:
            what = f"the arrays of {index.backend} are those of the rows"
            checks.append(attempt(what, path, partial(_check_backend, index, shared[0], path)))
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
    """Check the rows; ``known`` gets ``[R]`` how many tokens each row shares with the row before."""
    file = path / "tokens.npy"
    starts = rows.offsets.all()
    shared = shared_prefixes(rows.tokens, starts)
    lengths = np.diff(starts)
    for start in range(1, len(rows), _AT_ONCE):
        these = np.arange(start, min(start + _AT_ONCE, len(rows)))
        at = shared[these]
        if (at >= np.minimum(lengths[these], lengths[these - 1])).any():
            raise IndexFormatError(f"{file}: a row is the beginning of the next one; {REBUILD}")
        if (rows.tokens[starts[these] + at] <= rows.tokens[starts[these - 1] + at]).any():
            raise IndexFormatError(f"{file}: the rows are not sorted; {REBUILD}")
    if rows.form == "whole" and int((rows.tokens == rows.end).sum()) != len(rows):
        raise IndexFormatError(f"{file}: the end token {rows.end} is inside a row; {REBUILD}")
    if rows.form == "prefixes" and not np.array_equal(lengths, kept_lengths(lengths, shared, 0, rows.form)):
        raise IndexFormatError(f"{file}: a row is longer than its unique prefix; {REBUILD}")
    known.append(shared)


def _check_backend(index: Segment, shared: Ints, path: Path) -> None:
    if index.backend == "array":
        _check_nodes(index.rows, index.arrays(), shared, path)
        return
    again = type(index).build(index.rows, shared)
    for name, array in again.arrays().items():
        if not np.array_equal(array, index.arrays()[name]):
            raise _other(path, name)


def _check_nodes(rows: Rows, stored: dict[str, Array], shared: Ints, path: Path) -> None:
    """Compare the nodes of ``array``, level by level, with those that the rows make."""
    node = edge = 0
    inner = 1
    first_edges = stored["first_edges"]
    for part in branches(len(rows), shared):
        nodes, edges = slice(node, node + len(part.depths)), slice(edge, edge + len(part.child_lows))
        places = rows.offsets[part.child_lows] + np.repeat(part.depths, part.fanouts)
        ends = first_edges[node + 1 : nodes.stop + 1].astype(np.int64)
        made = {
            "depths": (stored["depths"][nodes], part.depths),
            "spans": (stored["spans"][nodes], np.stack((part.lows, part.highs), axis=1)),
            "first_edges": (ends, edge + np.cumsum(part.fanouts)),
            "edge_tokens": (stored["edge_tokens"][edges], rows.tokens[places]),
            "edge_nodes": (stored["edge_nodes"][edges], number_children(part, inner)),
        }
        for name, (held, due) in made.items():
            if not np.array_equal(held, due):
                raise _other(path, name)
        node, edge, inner = nodes.stop, edges.stop, inner + int(part.inner.sum())
    if (node, edge) != (len(stored["depths"]), len(stored["edge_tokens"])):
        raise _other(path, "depths")


def _other(path: Path, name: str) -> IndexFormatError:
    return IndexFormatError(f"{path / name}.npy: it is not what the rows make; {REBUILD}")
