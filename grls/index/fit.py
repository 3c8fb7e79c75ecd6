"""Whether the arrays of a stored index fit together, before anything is read through them.

Legend: N passages, R rows, T tokens, M branching nodes, E edges.

Checksums show that a file is as it was written; they do not show that it was written by grls. A folder from
elsewhere may hold arrays of any type, shape and content with checksums that fit. :func:`refuse_misfit` looks
at types, shapes and ends, in a time that does not grow. :func:`refuse_outside` looks at every number that is
a place in another array. After both, a search reads no place outside an array. Whether the rows are sorted
and the nodes are those of the rows: :mod:`grls.index.index_check`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grls.errors import IndexFormatError
from grls.index.array_files import REBUILD
from grls.index.rows import Array, Ints, Rows

_AT_ONCE = 1 << 20
"""Numbers that are compared together."""

_DIMENSIONS = {"spans": 2}
"""Dimensions of an array, of the others: 1."""

_KINDS = {"edge_nodes": "i"}
"""Kinds of NumPy types of an array; of the others: unsigned."""


def refuse_misfit(arrays: dict[str, Array], backend: str, path: Path) -> None:
    """Refuse arrays whose types, shapes or ends do not fit together.

    Args:
        arrays: All arrays of the index; where ``within`` is empty, the offsets are plain.
        backend: The backend, which has arrays of its own.
        path: The folder, for errors.

    Raises:
        IndexFormatError: The error names the file.
    """
    for name, array in arrays.items():
        if array.ndim != _DIMENSIONS.get(name, 1) or array.dtype.kind not in _KINDS.get(name, "u"):
            raise _misfit(path, name, f"an array {array.shape} of {array.dtype} is none of an index")
    rows = _rows(arrays, path)
    if backend == "array":
        _refuse_nodes(arrays, rows, path)


def _rows(arrays: dict[str, Array], path: Path) -> int:
    """R, if the arrays of the rows fit together."""
    offsets, within = arrays["offsets"], arrays["within"]
    rows = (len(within) or len(offsets)) - 1
    blocks = rows // 32 + 1 if len(within) else rows + 1
    if rows < 0 or len(offsets) != blocks:
        raise _misfit(path, "offsets", f"{len(offsets):,} offsets do not fit {rows:,} rows")
    last = int(offsets[-1]) + (int(within[-1]) if len(within) else 0)
    if int(offsets[0]) + (int(within[0]) if len(within) else 0) or last != len(arrays["tokens"]):
        raise _misfit(path, "offsets", f"the rows end at {last:,} of {len(arrays['tokens']):,} tokens")
    members, shared = arrays["members"], arrays["member_offsets"]
    ends = (len(shared), int(shared[0]), int(shared[-1])) if len(shared) else (rows + 1, 0, rows)
    if ends != (rows + 1, 0, len(members)):
        raise _misfit(path, "member_offsets", f"{len(members):,} passages do not fit {rows:,} rows")
    return rows


def _refuse_nodes(arrays: dict[str, Array], rows: int, path: Path) -> None:
    """Refuse the nodes of the backend ``array`` if their numbers do not fit."""
    nodes, edges = len(arrays["depths"]), len(arrays["edge_tokens"])
    first = arrays["first_edges"]
    if nodes < 1 or arrays["spans"].shape != (nodes, 2):
        raise _misfit(
            path, "spans", f"{arrays['spans'].shape} is not two numbers for each of {nodes:,} nodes"
        )
    if len(first) != nodes + 1 or int(first[0]) or int(first[-1]) != edges:
        raise _misfit(path, "first_edges", f"it does not fit {nodes:,} nodes with {edges:,} edges")
    if len(arrays["edge_nodes"]) != edges or edges != max(nodes + rows - 1, 0):
        raise _misfit(path, "edge_nodes", f"{edges:,} edges do not fit {nodes:,} nodes and {rows:,} rows")


def refuse_outside(rows: Rows, arrays: dict[str, Array], path: Path) -> None:
    """Refuse an index with a number that is a place outside of an array; reads every number but tokens.

    Args:
        rows: The rows, after :func:`refuse_misfit`.
        arrays: The arrays of the backend.
        path: The folder, for errors.

    Raises:
        IndexFormatError: The error names the file.
    """
    lengths = rows.lengths()
    longest = int(lengths.max(initial=0))
    if longest != rows.longest:
        raise IndexFormatError(
            f"{path / 'index.json'} has changed since it was written: it says that the longest row has "
            f"{rows.longest:,} tokens, which is {longest:,}; {REBUILD}"
        )
    if len(lengths) and int(lengths.min()) < 1:
        raise _misfit(path, "offsets", "a row is empty")
    _refuse_unended(rows, path)
    _refuse_above(rows.members, len(rows.members) - 1, path, "members")
    _refuse_falling(rows.member_offsets, path, "member_offsets")
    if "first_edges" in arrays:
        _refuse_falling(arrays["first_edges"], path, "first_edges")
    if "spans" in arrays:
        _refuse_above(arrays["spans"].reshape(-1), len(rows), path, "spans")
        _refuse_falling(arrays["spans"].reshape(-1), path, "spans", within=2)
    if "edge_nodes" in arrays:
        _refuse_other_edges(arrays, lengths, path)


def _refuse_unended(rows: Rows, path: Path) -> None:
    """Refuse whole rows that do not end in the end token, block by block."""
    for start in range(0, len(rows) if rows.form == "whole" else 0, _AT_ONCE):
        last = rows.offsets[np.arange(start, min(start + _AT_ONCE, len(rows))) + 1] - 1
        if (rows.tokens[last] != rows.end).any():
            raise _misfit(path, "tokens", f"a row does not end in the end token {rows.end}")


def _refuse_other_edges(arrays: dict[str, Array], lengths: Ints, path: Path) -> None:
    """Refuse edges that do not lead down: to each further node once, in order, and to each row once."""
    below, depths = arrays["edge_nodes"].astype(np.int64), arrays["depths"].astype(np.int64)
    first_edges = arrays["first_edges"].astype(np.int64)
    fanouts = first_edges[1:] - first_edges[:-1]
    inner = below >= 0
    leaves = np.sort(~below[~inner])
    in_order = np.array_equal(below[inner], np.arange(1, len(depths)))
    if not in_order or not np.array_equal(leaves, np.arange(len(lengths))):
        raise _misfit(path, "edge_nodes", "the edges do not lead once to each node and row")
    if (depths[below[inner]] <= np.repeat(depths, fanouts)[inner]).any():
        raise _misfit(path, "depths", "a node is not below the node before it")
    first_rows = arrays["spans"][:, 0].astype(np.int64)
    if len(lengths) and (depths >= lengths[np.minimum(first_rows, len(lengths) - 1)]).any():
        raise _misfit(path, "depths", "a node lies behind the end of its first row")


def _refuse_above(array: Array, most: int, path: Path, name: str) -> None:
    if len(array) and int(array.max()) > most:
        raise _misfit(path, name, f"the number {int(array.max()):,} is above {most:,}")


def _refuse_falling(array: Array, path: Path, name: str, within: int = 0) -> None:
    """Refuse numbers one of which is below the one before it, or, in pairs, below the first of its pair."""
    for start in range(0, max(len(array) - 1, 0), _AT_ONCE):
        part = array[start : start + _AT_ONCE + (0 if within else 1)]
        pairs = (part[::2], part[1::2]) if within else (part[:-1], part[1:])
        if (pairs[1] < pairs[0]).any():
            raise _misfit(path, name, "its numbers must not fall")


def _misfit(path: Path, name: str, what: str) -> IndexFormatError:
    return IndexFormatError(f"{path / name}.npy: {what}; {REBUILD}")
