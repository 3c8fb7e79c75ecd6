"""One constraint index over several prefix ranges, equal to the whole index.

Legend: P parts, S states, A allowed tokens, R rows, N passages.

Rows are numbered through all parts. The lowest bits of a state name the part that holds its prefix, and
the rest is the state within that part. A prefix at a cut is held by several parts: there are at most as
many such *shared* prefixes for each cut as its rows share tokens, so their tokens, children and ranges
are computed at the beginning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.cluster.options import USUAL_WORKERS, Workers, workers_of
from grls.cluster.workers import Cluster
from grls.errors import ConfigError, GrlsError, IndexFormatError
from grls.index.array import ArrayIndex
from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.files import REBUILD, load_arrays, map_array, read_manifest
from grls.index.options import Form
from grls.index.rows import Array, Ints, Rows, SortedRows, sort, unsigned
from grls.index.storage import load_index, write_index
from grls.io.seal import seal

_BITS = 10
_MASK = (1 << _BITS) - 1
_SHARED = _MASK
"""The part number in a state that stands for a shared prefix."""
MOST_PARTS = _SHARED


_NOTHING: Ints = np.empty(0, dtype=np.int64)


class Facts(NamedTuple):
    rows: int
    passages: int
    longest: int
    end: int
    form: Form
    start: int


class RangePart:
    """A part of an index; ``numbers`` are those of its passages in the whole index, ascending."""

    def __init__(self, segment: Segment, numbers: Array):
        self.segment, self.rows, self.numbers = segment, segment.rows, numbers

    def facts(self) -> Facts:
        rows = self.rows
        return Facts(len(rows), len(rows.members), rows.longest, rows.end, rows.form, self.segment.start())

    def allowed(self, states: Ints) -> tuple[Ints, ...]:
        """Tokens, states and offsets, and the spans of these states."""
        allowed = self.segment.allowed(states)
        return (*allowed, *self.segment.span(allowed.states))

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        return self.segment.span(states)

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:
        return self.rows.tokens_at(rows, positions)

    def row(self, r: int) -> Ints:
        return self.rows.row(r)

    def lengths(self) -> Ints:
        return self.rows.lengths()

    def members_before(self, rows: Ints) -> Ints:
        return self.rows.members_before(rows)

    def members_in(self, low: int, high: int) -> Array:
        """Numbers in the whole index."""
        members: Array = self.numbers[self.rows.members_in(low, high)]
        return members

    def sizes(self) -> Ints:
        """The number of passages of each row."""
        return np.diff(self.rows.members_before(np.arange(len(self.rows) + 1)))


class IndexParts(ABC):
    """The P parts of an index, in the order of their rows; states and rows are those within a part."""

    facts: list[Facts]
    """The size of each part."""

    @abstractmethod
    def ask(self, question: str, given: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Call a method of several parts; part -> its arguments.

        Parts in other processes answer at the same time.
        """


class PartsHere(IndexParts):
    def __init__(self, parts: Sequence[RangePart]):
        self._parts = parts
        self.facts = [part.facts() for part in parts]

    def ask(self, question: str, given: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        return {part: getattr(self._parts[part], question)(*own) for part, own in given.items()}


class RangedRows(SortedRows):
    """The rows of all parts, numbered through."""

    def __init__(self, parts: IndexParts):
        self.parts = parts
        facts = parts.facts
        self.end, self.form = facts[0].end, facts[0].form
        self.longest = max(part.longest for part in facts)
        self.first_rows: Ints = np.cumsum([0, *(part.rows for part in facts)])
        """``[P + 1]`` the first row of each part, and R."""
        self._first_members: Ints = np.cumsum([0, *(part.passages for part in facts)])

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    @cached_property
    def row_of(self) -> Array:
        """``[N]`` row of each passage, made at first use."""
        count = int(self._first_members[-1])
        rows = np.empty(count, dtype=unsigned(count))
        for part, facts in enumerate(self.parts.facts):  # one part at a time: little memory
            members = self.parts.ask("members_in", {part: (0, facts.rows)})[part]
            sizes = self.parts.ask("sizes", {part: ()})[part]
            first = int(self.first_rows[part])
            rows[members] = np.repeat(np.arange(first, first + facts.rows), sizes)
        return rows

    def row(self, r: int) -> Ints:
        part = int(self._part(np.array([r]))[0])
        row: Ints = self.parts.ask("row", {part: [int(r - self.first_rows[part])]})[part]
        return row

    def tokens_at(self, rows: Ints, positions: Ints) -> Ints:
        part = self._part(rows)
        tokens = np.empty(len(rows), dtype=np.int64)
        numbers = _by_part(part)
        local = {p: [rows[n] - self.first_rows[p], positions[n]] for p, n in numbers.items()}
        for p, values in self.parts.ask("tokens_at", local).items():
            tokens[numbers[p]] = values
        return tokens

    def lengths(self) -> Ints:
        replies = self.parts.ask("lengths", dict.fromkeys(range(len(self.parts.facts)), ()))
        return np.concatenate([replies[part] for part in sorted(replies)])

    def members_before(self, rows: Array) -> Ints:
        rows = np.asarray(rows, dtype=np.int64)
        part = self._part(rows)
        counts = self._first_members[part]
        numbers = _by_part(part)
        local = {p: [rows[n] - self.first_rows[p]] for p, n in numbers.items()}
        for p, before in self.parts.ask("members_before", local).items():
            counts[numbers[p]] += before
        return counts

    def members_in(self, low: int, high: int) -> Ints:
        ranges = {}
        for part, (first, last) in enumerate(zip(self.first_rows, self.first_rows[1:], strict=False)):
            if low < last and high > first:
                ranges[part] = int(max(low, first) - first), int(min(high, last) - first)
        replies = self.parts.ask("members_in", ranges)
        return np.concatenate([_NOTHING, *(replies[part] for part in sorted(replies))])

    def _part(self, rows: Ints) -> Ints:
        """The part of each row; R belongs to the last part."""
        part = np.searchsorted(self.first_rows, rows, side="right") - 1
        return np.minimum(part, len(self.parts.facts) - 1)


def _by_part(part: Ints) -> dict[int, Ints]:
    return {p: np.flatnonzero(part == p) for p in np.unique(part).tolist()}


class _Shared(NamedTuple):
    """A prefix that several parts hold: the tokens that may follow, with state and rows of each, ``[A]``."""

    tokens: Ints
    states: Ints
    lows: Ints
    highs: Ints


class RangedIndex(ConstraintIndex):
    """The index of all parts, in the order of their rows."""

    rows: RangedRows

    def __init__(self, parts: IndexParts):
        if len(parts.facts) > MOST_PARTS:
            raise ConfigError(f"an index has at most {MOST_PARTS:,} parts, got {len(parts.facts):,}.")
        super().__init__(RangedRows(parts))
        self._parts = parts
        self._known: tuple[Ints, Ints, Ints] | None = None  # the states of the last answer, and their rows
        self._shared: list[_Shared] = []
        self._walk()

    def start(self) -> int:
        return _SHARED

    def allowed(self, states: Ints) -> Allowed:
        owner, inner = states & _MASK, states >> _BITS
        numbers = _by_part(owner)
        shared = numbers.pop(_SHARED, _NOTHING)
        replies = self._parts.ask("allowed", {p: [inner[n]] for p, n in numbers.items()})
        sizes = np.zeros(len(states), dtype=np.int64)
        for p, n in numbers.items():
            sizes[n] = np.diff(replies[p][2])
        prefixes = [self._shared[number] for number in inner[shared].tolist()]
        sizes[shared] = [len(prefix.tokens) for prefix in prefixes]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        tokens, children, low, high = (np.empty(int(offsets[-1]), dtype=np.int64) for _ in range(4))
        for p, n in numbers.items():
            size = sizes[n]  # the entries of these states in the ragged arrays
            within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
            slots = np.repeat(offsets[n], size) + within
            first = self.rows.first_rows[p]
            tokens[slots], children[slots] = replies[p][0], replies[p][1] << _BITS | p
            low[slots], high[slots] = replies[p][3] + first, replies[p][4] + first
        for number, prefix in zip(shared.tolist(), prefixes, strict=True):
            slot = slice(int(offsets[number]), int(offsets[number + 1]))
            tokens[slot], children[slot], low[slot], high[slot] = prefix
        self._known = children, low, high
        return Allowed(tokens, children, offsets)

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        known = self._known
        if known is not None and known[0] is states:  # a search asks for the rows of the last answer
            return known[1], known[2]
        owner, inner = states & _MASK, states >> _BITS
        low, high = np.empty(len(states), dtype=np.int64), np.empty(len(states), dtype=np.int64)
        numbers = _by_part(owner)
        for number in numbers.pop(_SHARED, _NOTHING).tolist():
            prefix = self._shared[int(inner[number])]
            low[number], high[number] = prefix.lows[0], prefix.highs[-1]
        replies = self._parts.ask("span", {p: [inner[n]] for p, n in numbers.items()})
        for p, n in numbers.items():
            low[n], high[n] = (rows + self.rows.first_rows[p] for rows in replies[p])
        return low, high

    def _walk(self) -> None:
        """Find all shared prefixes, from the empty one on: the union of what several parts allow after each.

        Rows are sorted, so the tokens of a part are not below those of the parts before it.
        """
        waiting = [{p: facts.start for p, facts in enumerate(self._parts.facts)}]
        while len(self._shared) < len(waiting):
            prefix = waiting[len(self._shared)]
            replies = self._parts.ask("allowed", {p: [np.array([state])] for p, state in prefix.items()})
            order = sorted(replies)
            part = np.repeat(order, [len(replies[p][0]) for p in order])
            tokens, children = (np.concatenate([replies[p][n] for p in order]) for n in (0, 1))
            lows, highs = (
                np.concatenate([replies[p][n] + self.rows.first_rows[p] for p in order]) for n in (3, 4)
            )
            starts = np.flatnonzero(np.append(True, tokens[1:] != tokens[:-1]))
            ends = np.append(starts[1:], len(tokens))
            states = children[starts] << _BITS | part[starts]
            for number in np.flatnonzero(ends - starts > 1).tolist():  # tokens of two parts: shared prefixes
                same = slice(int(starts[number]), int(ends[number]))
                states[number] = len(waiting) << _BITS | _SHARED
                waiting.append(dict(zip(part[same].tolist(), children[same].tolist(), strict=True)))
            self._shared.append(_Shared(tokens[starts], states, lows[starts], highs[ends - 1]))


FORMAT = 2
RANGES = "ranges.json"
"""The manifest. Beside it are a folder for each part (``part-0``, …), an index of consecutive rows that
numbers its passages from 0, and ``numbers-0.npy``, …, their numbers in the whole index. As its corpus a part
names the whole and its number, so that it is not taken for a whole index."""


class PrefixRanges(NamedTuple):
    """How an index is cut.

    ``ray``: address of a cluster on whose machines the parts are opened; None: in this process.
    """

    parts: int
    ray: str | None = None


def part_of(index: ArrayIndex, low: int, high: int) -> RangePart:
    rows = index.rows
    offsets: Ints = rows.offsets[np.arange(low, high + 1)]
    firsts = rows.members_before(np.arange(low, high + 1))
    tokens = rows.tokens[int(offsets[0]) : int(offsets[-1])]
    offsets = offsets - offsets[0]
    members = rows.members[int(firsts[0]) : int(firsts[-1])]
    numbers = np.sort(members)
    local = np.searchsorted(numbers, members)
    part = Rows.pack(tokens, offsets, local, firsts[:-1] - firsts[0], rows.end, rows.form)
    return RangePart(ArrayIndex.build(part, sort(tokens, offsets)[1]), numbers)


def cuts_of(index: ArrayIndex, parts: int) -> Ints:
    """``[parts + 1]`` the rows at which an index is cut into parts of as many tokens each."""
    rows = index.rows
    if not 1 <= parts <= len(rows):
        raise ConfigError(f"an index of {len(rows):,} rows has 1 to {len(rows):,} parts, got {parts}.")
    wanted = len(rows.tokens) * np.arange(1, parts) / parts
    ends = rows.offsets[np.arange(len(rows) + 1)]
    cuts = np.concatenate(([0], np.searchsorted(ends, wanted), [len(rows)]))
    numbers = np.arange(parts + 1)
    # Every part has a row, however long single rows are.
    cuts = np.maximum.accumulate(np.maximum(cuts - numbers, 0)) + numbers
    return np.minimum(cuts, len(rows) - parts + numbers)


def write_ranges(
    index: ConstraintIndex, folder: Path, ranges: PrefixRanges, tokenizer: str, corpus: str
) -> None:
    """Cut an index into parts and write them into a folder, with the fingerprints of codec and corpus."""
    if not isinstance(index, ArrayIndex):
        raise ConfigError(
            "only an index of the backend 'array' is cut into ranges; got a "
            f"{type(index).__name__}: build it again."
        )
    parts = ranges.parts
    cuts = cuts_of(index, parts)
    for number in range(parts):
        part_folder = folder / f"part-{number}"
        part_folder.mkdir()
        part = part_of(index, int(cuts[number]), int(cuts[number + 1]))
        write_index(part.segment, part_folder, tokenizer, _name(corpus, number, parts))
        np.save(folder / f"numbers-{number}.npy", part.numbers, allow_pickle=False)
    record = {"format": FORMAT, **ranges._asdict(), "tokenizer": tokenizer, "corpus": corpus}
    seal(folder / RANGES, record)


def open_ranges(
    folder: Path, tokenizer: str | None = None, corpus: str | None = None, verify: bool | None = None
) -> RangedIndex:
    """Open all parts of a folder that :func:`write_ranges` wrote; see :func:`grls.index.load_index`."""
    record = read_manifest(folder / RANGES, FORMAT, {"parts": int}, tokenizer, corpus)
    count, address = record["parts"], record.get("ray")
    if not 1 <= count <= MOST_PARTS:
        raise IndexFormatError(
            f"{folder / RANGES}: expected 1 to {MOST_PARTS:,} parts, got {count:,}; {REBUILD}"
        )
    if address is not None:
        workers_of(address if isinstance(address, str) else "", USUAL_WORKERS)
    files = [PartFiles(folder / f"part-{n}", folder / f"numbers-{n}.npy") for n in range(count)]
    names = [file.numbers.stem for file in files]
    arrays = load_arrays(folder / RANGES, record, names, verify)
    parts = []
    for number, file in enumerate(files):
        name = _name(record["corpus"], number, count)
        segment = load_index(file.folder, record["tokenizer"], name, verify)
        parts.append(RangePart(segment, arrays[file.numbers.stem]))
    total = sum(len(part.segment) for part in parts)
    for file, part in zip(files, parts, strict=True):
        segment, numbers = part.segment, part.numbers
        good = numbers.ndim == 1 and numbers.dtype.kind == "u" and len(numbers) == len(segment)
        if not good or int(numbers.max(initial=0)) >= max(total, 1):
            raise IndexFormatError(
                f"{file.numbers}: these are not the numbers of {len(segment):,} of {total:,} passages; "
                f"{REBUILD}"
            )
    if address is not None:
        return RangedIndex(PartsOnRay(files, address))
    return RangedIndex(PartsHere(parts))


def _name(corpus: str, number: int, parts: int) -> str:
    return f"{corpus}, range {number + 1} of {parts}"


class PartFiles(NamedTuple):
    folder: Path
    numbers: Path


class ServedPart(RangePart):
    """A part in an actor of Ray, opened by the first call: of a constructor Ray does not give the error."""

    def __init__(self, folder: str, numbers: str):
        self._files = PartFiles(Path(folder), Path(numbers))

    def facts(self) -> Facts:
        super().__init__(load_index(self._files.folder, verify=False), map_array(self._files.numbers))
        return super().facts()


class PartsOnRay(IndexParts):
    """Parts in actors of a Ray cluster, one a part; all machines see the files."""

    def __init__(self, files: Sequence[PartFiles], address: str):
        self._stack = ExitStack()
        cluster = self._stack.enter_context(Cluster.opened(Workers(address, USUAL_WORKERS)))
        try:
            cluster.check_sees(files[0].numbers)
            import ray

            # No processor is reserved, so that more parts than processors can start.
            part_on_ray = ray.remote(ServedPart).options(num_cpus=0, scheduling_strategy="SPREAD")
            self._actors = [
                part_on_ray.remote(str(folder.absolute()), str(numbers.absolute()))
                for folder, numbers in files
            ]
            replies = [actor.facts.remote() for actor in self._actors]
            self.facts = [self._received(part, reply) for part, reply in enumerate(replies)]
        except BaseException:
            self._stack.close()
            raise

    def ask(self, question: str, given: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        replies = {part: getattr(self._actors[part], question).remote(*own) for part, own in given.items()}
        return {part: self._received(part, reply) for part, reply in replies.items()}

    def close(self) -> None:
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._stack.close()

    def _received(self, part: int, reply: Any) -> Any:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            return ray.get(reply)
        except RayTaskError as error:  # what the actor raised
            if isinstance(error.cause, GrlsError):
                raise error.cause from None
            raise ConfigError(f"the actor of part {part} of the index has failed: {error.cause}") from None
        except RayError:
            raise ConfigError(
                f"the actor of part {part} of the index has ended (its machine is gone, or for lack of "
                "memory): open the retriever again."
            ) from None
