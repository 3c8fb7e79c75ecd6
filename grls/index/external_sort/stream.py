"""Builds the array index from a stream of passages in bounded memory, by an external sort.

Sorted runs are written to a scratch folder (:mod:`grls.index.external_sort.runs`). Parts of them are sorted
in memory and appended to the final files. Scratch files keep the place at which each row differs from the row
before it; from these the branching nodes are written level by level. The final files have the same bytes as
those of the in-memory build, which is the naive form of this module. Legend: N passages, R rows, M nodes, T
tokens.

Memory: the limit of the caller for sorting; while the nodes are made, 6 bytes a row (10 with 32-bit tokens)
and 16 bytes for every node of two levels: under 200 MB for 20 million passages of which one in seven adds a
node. Disk beside the index, until it is done: the tokens once more, 16 bytes a passage, and 12 to 16 bytes a
row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.index.array import branches, edge_types, number_children
from grls.index.external_sort.runs import (
    GrowingArray,
    Partition,
    RowSlice,
    SortedRun,
    read_part,
)
from grls.index.rows import (
    Array,
    Form,
    Ints,
    gather,
    kept_lengths,
    pack_offsets,
    packable,
    sort,
    unsigned,
)

SMALLEST_MEMORY = 64 * 2**20
"""The least useful memory limit, in bytes."""
_AT_ONCE = 1 << 20


class Runs(NamedTuple):
    """The sorted runs of all passages.

    Attributes:
        runs: The runs; passages with equal tokens go in their order.
        passages: N.
        top: The largest token id.
    """

    runs: tuple[SortedRun, ...]
    passages: int
    top: int


def merge_runs(
    sorted_runs: Runs, folder: Path, scratch: Path, memory: int, form: Form = "whole", release: bool = False
) -> dict[str, int]:
    """Merge sorted runs into the ``.npy`` files of an array index.

    Args:
        sorted_runs: The runs.
        folder: Destination.
        scratch: A folder for scratch files.
        memory: Memory for sorting in bytes.
        form: What to keep of each row.
        release: Remove the tokens of the runs once they are merged, for the sake of disk space.

    Returns:
        ``passages``, ``rows``, ``tokens`` (stored) and ``longest``.
    """
    runs, passages, kind = list(sorted_runs.runs), sorted_runs.passages, unsigned(sorted_runs.top)
    with _SortedFiles(folder, scratch, kind, passages, form) as sorted_files:
        for part in Partition(runs, np.dtype(kind).itemsize, memory).parts():
            for rows in _sorted(runs, part, kind):
                sorted_files.add(*rows)
    for run in runs if release else ():
        (run.folder / "tokens.npy").unlink()
    _write_offsets(folder, scratch, sorted_files.tokens, sorted_files.longest)
    count = sorted_files.rows
    with GrowingArray(folder / "member_offsets.npy", unsigned(passages)) as file:
        if count < passages:  # empty where no row is shared
            total = 0
            file.append(np.zeros(1, dtype=np.int64))
            for low in range(0, count, _AT_ONCE):
                sizes = read_part(scratch / "sizes.npy", low, min(low + _AT_ONCE, count)).astype(np.int64)
                file.append(total + np.cumsum(sizes))
                total += int(sizes.sum())
    _write_nodes(folder, scratch, sorted_files.rows, kind, unsigned(passages))
    return {
        "passages": passages,
        "rows": sorted_files.rows,
        "tokens": sorted_files.tokens,
        "longest": sorted_files.longest,
    }


def _sorted(
    runs: list[SortedRun], part: RowSlice, kind: Any
) -> Iterator[tuple[Array, Ints, Ints, Ints, Ints]]:
    """The distinct rows of a part in order: tokens, offsets, shared, members, and members of each row.

    If all rows of a part are equal, the members come in several pieces: as rows without tokens, which belong
    to the row before.
    """
    bounds = [(run, int(a), int(b)) for run, a, b in zip(runs, part.low, part.high, strict=True) if b > a]
    if part.equal:
        run, row, _ = bounds[0]
        first, last = run.offsets(row, row + 1).tolist()
        none = np.empty(0, dtype=np.int64)
        tokens, offsets = run.tokens(first, last).astype(kind), np.array([0, last - first])
        yield tokens, offsets, np.zeros(1, np.int64), none, np.zeros(1, np.int64)
        for run, low, high in bounds:
            for at in range(low, high, _AT_ONCE):
                members = run.numbers(at, min(at + _AT_ONCE, high))
                yield tokens[:0], np.zeros(1, np.int64), none, members, np.array([len(members)])
        return
    places = [run.offsets(low, high) for run, low, high in bounds]
    lengths = np.concatenate([np.diff(place) for place in places])
    tokens = np.concatenate(
        [
            run.tokens(int(place[0]), int(place[-1]))
            for (run, _, _), place in zip(bounds, places, strict=True)
        ],
        dtype=kind,
        casting="unsafe",
    )
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    order, shared = sort(tokens, offsets)
    members = np.concatenate([run.numbers(low, high) for run, low, high in bounds])[order]
    starts = np.flatnonzero(shared >= 0)
    first_rows = order[starts]
    sorted_offsets = np.concatenate(([0], np.cumsum(lengths[first_rows])))
    sizes = np.diff(np.append(starts, len(order)))
    yield (
        gather(tokens, offsets[first_rows], sorted_offsets),
        sorted_offsets,
        shared[starts],
        members,
        sizes,
    )


class _SortedFiles:
    """Appends sorted rows to the final files, and the data for later steps to scratch files.

    Scratch files: ``lengths`` (stored tokens of each row), ``sizes`` (members of each row), ``shared``, and
    the two tokens in which each row first differs from the row before: ``own`` (of this row) and ``above``
    (of the row before).

    The last row is held back until the next row shows how much of it the form ``prefixes`` keeps.
    """

    def __init__(self, folder: Path, scratch: Path, kind: Any, passages: int, form: Form):
        self.rows = 0
        self.tokens = 0
        self.longest = 0
        self._form = form
        self._members_kind = unsigned(passages)
        self._last: Array = np.empty(0, dtype=kind)
        self._last_shared = 0
        self._last_size = 0
        self._open = ExitStack()
        add = self._open.enter_context
        self._tokens = add(GrowingArray(folder / "tokens.npy", kind))
        self._members = add(GrowingArray(folder / "members.npy", self._members_kind))
        self._lengths = add(GrowingArray(scratch / "lengths.npy", np.uint16))
        self._sizes = add(GrowingArray(scratch / "sizes.npy", self._members_kind))
        self._shared = add(GrowingArray(scratch / "shared.npy", np.uint16))
        self._own = add(GrowingArray(scratch / "own.npy", kind))
        self._above = add(GrowingArray(scratch / "above.npy", kind))

    def __enter__(self) -> _SortedFiles:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._finish_last(0)
        self._open.__exit__(*error)

    def add(self, tokens: Array, offsets: Ints, shared: Ints, members: Array, sizes: Ints) -> None:
        """Append rows (or, without offsets, members of the last row)."""
        self._members.append(members)
        if len(offsets) == 1:
            self._last_size += int(sizes[0])
            return
        shared = shared.copy()
        shortest = min(len(self._last), int(offsets[1]))
        differ = np.flatnonzero(self._last[:shortest] != tokens[:shortest])
        shared[0] = int(differ[0]) if len(differ) else shortest
        self._finish_last(int(shared[0]))
        own = tokens[offsets[:-1] + shared]
        above = np.empty_like(own)
        above[1:] = tokens[offsets[:-2] + shared[1:]]
        above[0] = self._last[shared[0]] if len(self._last) else 0
        self._own.append(own)
        self._above.append(above)
        self._shared.append(shared)
        lengths = kept_lengths(np.diff(offsets), shared, 0, self._form)[:-1]
        places = np.concatenate(([0], np.cumsum(lengths)))
        whole = self._form == "whole"
        stored = tokens[: offsets[-2]] if whole else gather(tokens, offsets[:-2], places)
        self._write(stored, lengths, sizes[:-1])
        self._last = tokens[offsets[-2] :].copy()
        self._last_shared = int(shared[-1])
        self._last_size = int(sizes[-1])

    def _finish_last(self, following: int) -> None:
        """Write the row that is held back; ``following`` is the length of the prefix the next row shares."""
        if not len(self._last):
            return
        length, shared = np.array([len(self._last)]), np.array([self._last_shared])
        kept = kept_lengths(length, shared, following, self._form)
        self._write(self._last[: kept[0]], kept, np.array([self._last_size]))

    def _write(self, tokens: Array, lengths: Ints, sizes: Ints) -> None:
        self._tokens.append(tokens)
        self._lengths.append(lengths)
        self._sizes.append(sizes)
        self.rows += len(lengths)
        self.tokens += len(tokens)
        self.longest = max(self.longest, int(lengths.max(initial=0)))


def _write_offsets(folder: Path, scratch: Path, tokens: int, longest: int) -> None:
    """``offsets.npy`` and ``within.npy``, as :meth:`grls.index.rows.Offsets.pack` makes them."""
    with (
        GrowingArray(folder / "offsets.npy", unsigned(tokens, np.uint32)) as blocks,
        GrowingArray(folder / "within.npy", np.uint16) as within,
    ):
        lengths_file = scratch / "lengths.npy"
        total = 0
        count = len(np.load(lengths_file, mmap_mode="r"))
        # There is one offset more than rows: the last piece, perhaps without a row, ends with T.
        for low in range(0, count + 1, _AT_ONCE):
            lengths = read_part(lengths_file, low, min(low + _AT_ONCE, count)).astype(np.int64)
            offsets = np.concatenate(([total], total + np.cumsum(lengths)))
            total = int(offsets[-1])
            if low + _AT_ONCE <= count:
                offsets = offsets[:-1]  # the next piece begins with the last offset
            if packable(longest):
                starts, distances = pack_offsets(offsets)
                blocks.append(starts)
                within.append(distances)
            else:
                blocks.append(offsets)


def _write_nodes(folder: Path, scratch: Path, rows: int, kind: Any, row_kind: Any) -> None:
    """The branching nodes, as :meth:`grls.index.array.ArrayIndex.build` makes them."""
    shared, own, above = (read_part(scratch / f"{name}.npy", 0, rows) for name in ("shared", "own", "above"))
    numbers, places = edge_types(rows)
    nodes, edges = 1, 0
    with (
        GrowingArray(folder / "depths.npy", np.uint16) as depths,
        GrowingArray(folder / "spans.npy", row_kind, columns=2) as spans,
        GrowingArray(folder / "first_edges.npy", places) as first_edges,
        GrowingArray(folder / "edge_tokens.npy", kind) as edge_tokens,
        GrowingArray(folder / "edge_nodes.npy", numbers) as edge_nodes,
    ):
        first_edges.append(np.zeros(1, dtype=places))
        for part in branches(rows, shared):
            depths.append(part.depths)
            spans.append(np.stack((part.lows, part.highs), axis=1))
            ends = np.cumsum(part.fanouts)
            first_edges.append(edges + ends)
            # The token in which a child's first row differs from the row before; of a node's first child,
            # that of the row before the second child at this place.
            tokens, several = own[part.child_lows], (ends - part.fanouts)[part.fanouts > 1]
            tokens[several] = above[part.child_lows[several + 1]]
            edge_tokens.append(tokens)
            edge_nodes.append(number_children(part, nodes))
            nodes += int(part.inner.sum())
            edges += int(part.fanouts.sum())
