"""Builds the array index from a stream of passages in bounded memory, by an external sort.

Pieces of the stream that fit into memory are sorted and written to a scratch folder, as runs. Then the
range of keys is cut into parts, so that the rows of a part in all runs fit into memory, too; each part is
sorted and appended to the final files. Scratch files keep where each row differs from the row before;
from these the branching nodes are written level by level. The bytes are those of the in-memory build, the
naive form of this module. Legend: N passages, P runs, R rows, M nodes, T tokens.

Memory: the caller's limit for sorting; for the nodes 6 bytes a row (10 with 32-bit tokens) and 16 bytes a
node of two levels. Disk beside the index: the tokens once more, 16 bytes a passage, 12 to 16 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from grls.index.array import BranchingNodes, node_arrays, node_types
from grls.index.options import Form
from grls.index.rows import (
    COPIES,
    ROW_BYTES,
    Array,
    Ints,
    Sequences,
    concatenated,
    cost,
    gather,
    keys_at,
    pack_offsets,
    packable,
    sort,
    stored_lengths,
    unsigned,
    validate,
)

SMALLEST_MEMORY = 64 * 2**20
"""The least useful memory limit, in bytes."""
_AT_ONCE = 1 << 20


class GrowingArray:
    """Writes an array piece by piece; the final file has the same bytes as a file of ``np.save``.

    NumPy pads the header so that the first axis can grow in place. ``columns``: length of the second
    axis; 0: none.
    """

    def __init__(self, file: Path, dtype: npt.DTypeLike, columns: int = 0):
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.length = 0
        self._columns = columns
        self._stream = file.open("wb")
        self._write_header()
        self._begin = self._stream.tell()

    def _write_header(self) -> None:
        shape = (self.length, self._columns) if self._columns else (self.length,)
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def append(self, values: Array) -> None:
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self._stream)
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._stream.flush()
                self._stream.seek(0)
                self._write_header()
                assert self._stream.tell() == self._begin, "NumPy's header grew"
        finally:
            self._stream.close()


_SAMPLE = 512


class SortedRun(NamedTuple):
    """``rows`` sorted passages in a folder with ``tokens.npy``, ``offsets.npy`` (the start of each row)
    and ``numbers.npy`` (passage numbers, ascending among equal rows).
    """

    folder: Path
    rows: int

    def mapped(self) -> tuple[Array, Ints]:
        tokens = np.load(self.folder / "tokens.npy", mmap_mode="r").view(np.ndarray)
        offsets = np.load(self.folder / "offsets.npy", mmap_mode="r").view(np.ndarray)
        return tokens, offsets

    def numbers(self, low: int, high: int) -> Array:
        return read_part(self.folder / "numbers.npy", low, high)

    def offsets(self, low: int, high: int) -> Ints:
        """The starts of rows ``low:high``, and the end of the last."""
        return read_part(self.folder / "offsets.npy", low, high + 1)

    def tokens(self, low: int, high: int) -> Array:
        return read_part(self.folder / "tokens.npy", low, high)


def read_part(file: Path, low: int, high: int) -> Array:
    """Elements ``low:high`` of an array; read, not mapped, so that no page stays in memory."""
    with file.open("rb") as stream:
        np.lib.format.read_magic(stream)
        _, _, dtype = np.lib.format.read_array_header_1_0(stream)
        stream.seek(low * dtype.itemsize, 1)
        part: Array = np.fromfile(stream, dtype, high - low)
    return part


class Spill:
    """Writes the pieces of a stream as sorted runs whenever the memory is full."""

    def __init__(self, folder: Path, end: int, memory: int, first: int = 0):
        self.runs: list[SortedRun] = []
        self.passages = 0
        self._first = first
        self.top = 0  # the largest token id
        self._folder = folder
        self._end = end
        self._memory = memory
        self._pieces: list[Sequences] = []  # with their cost, in memory
        self._cost = 0

    def take(self, pieces: Iterable[Sequences]) -> None:
        for piece in pieces:
            offsets = np.asarray(piece.offsets, dtype=np.int64)
            top = int(piece.tokens.max(initial=0))
            self.top = max(self.top, top)
            kind = unsigned(top)
            width = np.dtype(kind).itemsize
            costs = COPIES * width * offsets + ROW_BYTES * np.arange(len(offsets))
            first = 0
            while first < len(offsets) - 1:  # parts that fit into memory (or hold one passage)
                last = int(np.searchsorted(costs, costs[first] + self._memory, side="right")) - 1
                last = min(max(last, first + 1), len(offsets) - 1)
                tokens = piece.tokens[offsets[first] : offsets[last]].astype(kind)
                needed = cost(len(tokens), last - first, width)
                if self._pieces and self._cost + needed > self._memory:
                    self._write()
                self._pieces.append(Sequences(tokens, offsets[first : last + 1] - offsets[first]))
                self._cost += needed
                first = last
        self._write()

    def _write(self) -> None:
        if not self._pieces:
            return
        tokens, offsets = concatenated(self._pieces)
        self._pieces, self._cost = [], 0
        validate(tokens, offsets, self._end)
        order, _ = sort(tokens, offsets)
        folder = self._folder / f"run-{len(self.runs)}"
        folder.mkdir()
        sorted_offsets = np.concatenate(([0], np.cumsum(np.diff(offsets)[order])))
        np.save(folder / "offsets.npy", sorted_offsets)
        np.save(folder / "numbers.npy", (order + self._first + self.passages).astype(np.int64))
        with GrowingArray(folder / "tokens.npy", tokens.dtype) as file:
            for low in range(0, len(order), 1 << 16):
                high = min(low + (1 << 16), len(order))
                local = sorted_offsets[low : high + 1] - sorted_offsets[low]
                file.append(gather(tokens, offsets[order[low:high]], local))
        self.runs.append(SortedRun(folder, len(order)))
        self.passages += len(order)


class RowSlice(NamedTuple):
    """Consecutive rows in the order of all passages: first row and end row in each run, ``[P]``."""

    low: Ints
    high: Ints
    equal: bool
    """Whether all rows are equal."""


class Partition:
    """Cuts the sorted runs into parts that fit into ``memory`` bytes, with ``width`` bytes a token."""

    def __init__(self, runs: list[SortedRun], width: int, memory: int):
        self._runs = runs
        self._width = width
        self._memory = memory

    def parts(self) -> Iterator[RowSlice]:
        """All parts in order; a part that does not fit into memory has only equal rows."""
        rows = np.array([run.rows for run in self._runs])
        return self._cut(np.zeros_like(rows), rows)

    def _cut(self, low: Ints, high: Ints) -> Iterator[RowSlice]:
        if not (high > low).any():
            return
        needed = int(self._costs(np.stack((low, high)))[1])
        if needed <= self._memory or int((high - low).sum()) == 1:
            yield RowSlice(low, high, equal=False)
            return
        depth, equal = self._common(low, high)
        if equal:
            yield RowSlice(low, high, equal=True)
            return
        cuts = self._cuts(low, high, depth, min(_SAMPLE, 8 * (needed // self._memory + 1)))
        costs = self._costs(cuts)
        begin = 0
        for n in range(1, len(cuts)):  # join neighbours while they fit
            if costs[n] - costs[begin] > self._memory:
                yield from self._gathered(cuts, begin, n - 1)
                begin = n - 1
            if costs[n] - costs[begin] > self._memory:
                yield from self._cut(cuts[begin], cuts[n])
                begin = n
        yield from self._gathered(cuts, begin, len(cuts) - 1)

    def _gathered(self, cuts: Ints, begin: int, end: int) -> Iterator[RowSlice]:
        if (cuts[end] > cuts[begin]).any():
            yield RowSlice(cuts[begin], cuts[end], equal=False)

    def _costs(self, cuts: Ints) -> Ints:
        """Bytes for sorting the rows between the first of the cuts ``[C, P]`` and each cut."""
        tokens = np.zeros(len(cuts), dtype=np.int64)
        for n, run in enumerate(self._runs):
            tokens += run.mapped()[1][cuts[:, n]]
        costs: Ints = COPIES * self._width * tokens + ROW_BYTES * cuts.sum(axis=1)
        costs -= costs[0]
        return costs

    def _common(self, low: Ints, high: Ints) -> tuple[int, bool]:
        """How many tokens all rows of a range share, and whether they are equal; reads only the extremes."""
        extremes: list[Array] = []
        for run, a, b in zip(self._runs, low.tolist(), high.tolist(), strict=True):
            for row in (a, b - 1) if b > a else ():
                first, last = run.offsets(row, row + 1).tolist()
                extremes.append(run.tokens(first, last))
        shortest = min(len(row) for row in extremes)
        same = np.ones(shortest, dtype=np.bool_)
        for row in extremes[1:]:
            same &= row[:shortest] == extremes[0][:shortest]
        # The end token is the last of a row and nowhere else, so no row is a prefix of another.
        return (shortest, True) if same.all() else (int(np.argmin(same)), False)

    def _cuts(self, low: Ints, high: Ints, depth: int, sample: int) -> Ints:
        """``[C, P]`` cuts of a range in order: its start, before and after every sampled key, its end."""
        step = max(1, int((high - low).sum()) // sample)
        width = 8 // self._width
        keys = []
        for n, run in enumerate(self._runs):
            # Runs are alike, so each is sampled at different rows to get different keys.
            shift = min(n * step // len(self._runs), max(0, int(high[n] - low[n]) - 1))
            rows = np.arange(low[n] + shift, high[n], step)
            keys.append(keys_at(*run.mapped(), rows, depth, width))
        pivots = np.unique(np.concatenate(keys))
        cuts = np.empty((2 * len(pivots), len(self._runs)), dtype=np.int64)
        for n, run in enumerate(self._runs):  # one run mapped at a time
            bounds = int(low[n]), int(high[n])
            cuts[::2, n] = _search(*run.mapped(), *bounds, pivots, depth, width, after=False)
            cuts[1::2, n] = _search(*run.mapped(), *bounds, pivots, depth, width, after=True)
        return np.concatenate((low[None], cuts, high[None]))


def _search(
    tokens: Array,
    offsets: Ints,
    low: int,
    high: int,
    pivots: npt.NDArray[np.uint64],
    depth: int,
    width: int,
    after: bool,
) -> Ints:
    """For each pivot, the first row of ``low:high`` whose key is not below it (``after``: is above it)."""
    lows, highs = np.full(len(pivots), low), np.full(len(pivots), high)
    while (open_ := np.flatnonzero(lows < highs)).size:
        middle = (lows[open_] + highs[open_]) // 2
        keys = keys_at(tokens, offsets, middle, depth, width)
        below = keys <= pivots[open_] if after else keys < pivots[open_]
        lows[open_[below]] = middle[below] + 1
        highs[open_[~below]] = middle[~below]
    return lows


class Runs(NamedTuple):
    """The sorted runs of all passages; passages with equal tokens go in their order."""

    runs: tuple[SortedRun, ...]
    passages: int
    """N."""
    top: int
    """The largest token id."""


def merge_runs(
    sorted_runs: Runs, folder: Path, scratch: Path, memory: int, form: Form = "whole", release: bool = False
) -> dict[str, int]:
    """Merge sorted runs into the ``.npy`` files of an array index; ``memory`` is for sorting, in bytes.

    ``release`` removes the tokens of the runs once they are merged. Returns ``passages``, ``rows``,
    ``tokens`` (stored) and ``longest``.
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

    If all rows are equal, the members come in several pieces: as rows without tokens, which belong to the
    row before.
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
    starts_of = [(run, run.offsets(low, high)) for run, low, high in bounds]
    lengths = np.concatenate([np.diff(starts) for _, starts in starts_of])
    pieces = [run.tokens(int(starts[0]), int(starts[-1])) for run, starts in starts_of]
    tokens = np.concatenate(pieces, dtype=kind, casting="unsafe")
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    order, shared = sort(tokens, offsets)
    members = np.concatenate([run.numbers(low, high) for run, low, high in bounds])[order]
    starts = np.flatnonzero(shared >= 0)
    first_rows = order[starts]
    sorted_offsets = np.concatenate(([0], np.cumsum(lengths[first_rows])))
    sizes = np.diff(np.append(starts, len(order)))
    rows = gather(tokens, offsets[first_rows], sorted_offsets)
    yield rows, sorted_offsets, shared[starts], members, sizes


class _SortedFiles:
    """Appends sorted rows to the final files, and the data for later steps to scratch files.

    Scratch files: ``lengths`` (stored tokens of each row), ``sizes`` (members of each row), ``shared``,
    and the tokens in which each row first differs from the row before: ``own`` and ``above`` (of that
    row). The last row is held back until the next one shows how much of it the form ``prefixes`` keeps.
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
        lengths = stored_lengths(np.diff(offsets), shared, 0, self._form)[:-1]
        stored_offsets = np.concatenate(([0], np.cumsum(lengths)))
        all_of_rows = self._form == "whole"
        stored = tokens[: offsets[-2]] if all_of_rows else gather(tokens, offsets[:-2], stored_offsets)
        self._write(stored, lengths, sizes[:-1])
        self._last = tokens[offsets[-2] :].copy()
        self._last_shared = int(shared[-1])
        self._last_size = int(sizes[-1])

    def _finish_last(self, following: int) -> None:
        """Write the row that is held back; it shares ``following`` tokens with the next row."""
        if not len(self._last):
            return
        length, shared = np.array([len(self._last)]), np.array([self._last_shared])
        stored = stored_lengths(length, shared, following, self._form)
        self._write(self._last[: stored[0]], stored, np.array([self._last_size]))

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

    def tokens_of(part: BranchingNodes) -> Array:
        # The token in which a child's first row differs from the row before; of a node's first child, the
        # token of the row before the second child at this position.
        tokens, firsts = own[part.child_lows], np.cumsum(part.fanouts) - part.fanouts
        several = firsts[part.fanouts > 1]
        tokens[several] = above[part.child_lows[several + 1]]
        return tokens

    with ExitStack() as opened:
        files = {
            name: opened.enter_context(GrowingArray(folder / f"{name}.npy", dtype, 2 * (name == "spans")))
            for name, dtype in node_types(rows, row_kind, kind).items()
        }
        files["first_edges"].append(np.zeros(1, dtype=np.int64))
        for arrays in node_arrays(rows, shared, tokens_of):
            for name, array in arrays.items():
                files[name].append(array)
