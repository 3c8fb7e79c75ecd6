"""Cuts an index into prefix ranges, and opens them.

The folder holds ``ranges.json`` (format, number of parts, whether they run in processes or on Ray,
fingerprints) and a folder for each part, ``part-0``, ``part-1`` and so on: an index of consecutive rows. It
numbers its passages from 0; ``numbers-0.npy`` and so on hold their numbers in the whole index. A part names
the whole and its place as its corpus, so that it is not taken for a whole index.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from grls.cluster.options import USUAL_WORKERS, Workers, workers_of
from grls.cluster.ray_data import Cluster
from grls.errors import ConfigError, GrlsError, IndexFormatError, MismatchError, Option
from grls.index.array import ArrayIndex
from grls.index.array_files import REBUILD, describe_arrays, is_entry, load_arrays, map_array
from grls.index.base import ConstraintIndex
from grls.index.ranges.ranged import (
    MOST_PARTS,
    Arrays,
    Facts,
    IndexParts,
    PartsHere,
    RangedIndex,
    RangePart,
    answer,
    facts_of,
)
from grls.index.rows import Array, Ints, Offsets, Rows, shared_prefixes, unsigned
from grls.index.storage import load_index, write_index
from grls.io.files import read_json, write_json

FORMAT = 1
RANGES = "ranges.json"


class PrefixRanges(NamedTuple):
    """How an index is cut.

    Attributes:
        parts: Number of parts.
        processes: Whether a process for each part is started whenever the index is opened.
        ray: Address of a Ray cluster on whose machines the parts are opened instead; None: on this machine.
    """

    parts: int
    processes: bool = False
    ray: str | None = None


def part_of(index: ArrayIndex, low: int, high: int) -> RangePart:
    """The rows ``low:high`` of an index."""
    rows = index.rows
    offsets: Ints = rows.offsets[np.arange(low, high + 1)]
    first, last = (int(count) for count in rows.members_before(np.array([low, high])))
    tokens = rows.tokens[int(offsets[0]) : int(offsets[-1])]
    offsets = offsets - offsets[0]
    member_offsets = rows.member_offsets[low : high + 1] if rows.shared else rows.member_offsets
    members = rows.members[first:last]
    numbers = np.sort(members)
    kept = Rows(
        tokens=tokens,
        offsets=Offsets.pack(offsets),
        members=np.searchsorted(numbers, members).astype(unsigned(len(numbers))),
        member_offsets=member_offsets - member_offsets[:1] if rows.shared else member_offsets,
        end=rows.end,
        longest=int(np.diff(offsets).max(initial=0)),
        form=rows.form,
    )
    return RangePart(ArrayIndex.build(kept, shared_prefixes(tokens, offsets)), numbers)


def cuts_of(index: ArrayIndex, parts: int) -> Ints:
    """``[parts + 1]`` the rows at which an index is cut into parts of as many tokens each.

    Raises:
        ConfigError: There are fewer rows than parts, or fewer than one part.
    """
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
    """Cut an index into parts and write them into an existing folder.

    Args:
        index: The index, of the backend ``array``.
        folder: The folder; the caller gives it its final name.
        ranges: How to cut it.
        tokenizer: Fingerprint of the codec.
        corpus: Fingerprint of the corpus.

    Raises:
        ConfigError: The index is of another kind, or has fewer rows than parts.
    """
    if not isinstance(index, ArrayIndex):
        raise ConfigError(
            "only an index of the backend 'array' in one segment is cut into ranges; got a "
            f"{type(index).__name__}: merge it with `grls index update {Option('merge', True)}`, or build "
            "it again."
        )
    parts = ranges.parts
    cuts = cuts_of(index, parts)
    for number in range(parts):
        place = folder / f"part-{number}"
        place.mkdir()
        part = part_of(index, int(cuts[number]), int(cuts[number + 1]))
        assert isinstance(part.segment, ArrayIndex)
        write_index(part.segment, place, tokenizer, _name(corpus, number, parts))
        np.save(folder / f"numbers-{number}.npy", part.numbers, allow_pickle=False)
    record = {"format": FORMAT, **ranges._asdict(), "files": describe_arrays(folder)}
    write_json(folder / RANGES, {**record, "tokenizer": tokenizer, "corpus": corpus})


def open_ranges(
    folder: Path, tokenizer: str | None = None, corpus: str | None = None, verify: bool | None = None
) -> RangedIndex:
    """Open all parts of a folder that :func:`write_ranges` wrote.

    Args:
        folder: The folder.
        tokenizer: The required fingerprint of the codec; None accepts any.
        corpus: The required fingerprint of the corpus; None accepts any.
        verify: Compare checksums; see :func:`grls.index.load_index`.

    Raises:
        IndexFormatError: A part is missing or damaged, or is not of this index.
        MismatchError: The index was built with another tokenizer or corpus.
    """
    record = _read(folder / RANGES)
    for what, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and record[what] != expected:
            raise MismatchError(f"{folder}: the index was built with another {what}; {REBUILD}")
    count = record["parts"]
    places = [(folder / f"part-{number}", folder / f"numbers-{number}.npy") for number in range(count)]
    numbers = load_arrays(folder, record["files"], verify)
    parts = [
        RangePart(
            load_index(place, record["tokenizer"], _name(record["corpus"], number, count), verify),
            numbers[file.stem],
        )
        for number, (place, file) in enumerate(places)
    ]
    total = sum(len(part.segment) for part in parts)
    for place, (index, own) in enumerate(parts):
        good = own.ndim == 1 and own.dtype.kind == "u" and len(own) == len(index)
        if not good or int(own.max(initial=0)) >= max(total, 1):
            raise IndexFormatError(
                f"{folder / f'numbers-{place}.npy'}: these are not the numbers of {len(index):,} of "
                f"{total:,} passages; {REBUILD}"
            )
    if record["ray"] is not None:
        return RangedIndex(PartsOnRay(places, record["ray"]))
    return RangedIndex(PartsElsewhere(places) if record["processes"] else PartsHere(parts))


def _name(corpus: str, number: int, parts: int) -> str:
    return f"{corpus}, range {number + 1} of {parts}"


def _read(file: Path) -> dict[str, Any]:
    record = read_json(file)
    fields = {"format": int, "parts": int, "processes": bool, "tokenizer": str, "corpus": str, "files": dict}
    good = isinstance(record, dict) and record.get("format") == FORMAT
    if not good or not all(isinstance(record.get(name), kind) for name, kind in fields.items()):
        raise IndexFormatError(f"{file}: expected the parts of an index of format {FORMAT}; {REBUILD}")
    if not 1 <= record["parts"] <= MOST_PARTS:
        raise IndexFormatError(
            f"{file}: expected 1 to {MOST_PARTS:,} parts, got {record['parts']:,}; {REBUILD}"
        )
    address = record.get("ray")
    if address is not None:
        workers_of(address if isinstance(address, str) else "", USUAL_WORKERS)
    files = record["files"]
    if missing := [n for n in range(record["parts"]) if not is_entry(files.get(f"numbers-{n}"))]:
        raise IndexFormatError(f"{file}: it names no file numbers-{missing[0]}.npy; {REBUILD}")
    record["files"] = {name: files[name] for name in (f"numbers-{n}" for n in range(record["parts"]))}
    checked: dict[str, Any] = record
    return checked


# Parts of an index in other processes: each opens its part, and answers over a pipe.
#
# A message is a line of JSON and the bytes of its arrays, so nothing is unpickled. A part process ends with
# the process that started it, because its pipe closes.


class PartsElsewhere(IndexParts):
    """Parts in processes of this machine, one a part.

    Args:
        places: For each part its folder and the file of its numbers, both checked.

    Raises:
        IndexFormatError: A part has changed meanwhile.
        ConfigError: A process ended.
    """

    def __init__(self, places: Sequence[tuple[Path, Path]]):
        self._lock = Lock()
        self._pipes: list[Connection] = []
        self._processes = []
        context = multiprocessing.get_context("spawn")
        for folder, numbers in places:
            here, there = context.Pipe()
            process = context.Process(target=serve_part, args=(there, str(folder), str(numbers)), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self.facts = [Facts(**self._receive(part)[0]["facts"]) for part in range(len(places))]

    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:  # noqa: D102
        with self._lock:
            for part, arrays in asked.items():
                try:
                    self._pipes[part].send_bytes(packed({"what": what}, arrays))
                except OSError:
                    raise self._ended(part) from None
            return {part: self._receive(part)[1] for part in asked}

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)

    def _receive(self, part: int) -> tuple[dict[str, Any], list[Array]]:
        try:
            head, arrays = unpacked(self._pipes[part].recv_bytes())
        except (EOFError, OSError):
            raise self._ended(part) from None
        if "error" in head:
            raise IndexFormatError(head["error"])
        return head, arrays

    def _ended(self, part: int) -> ConfigError:
        return ConfigError(
            f"the process of part {part} of the index has ended (killed, or for lack of memory): open the "
            "retriever again."
        )


class ServedPart:
    """A part that answers messages in another process.

    Args:
        folder: Its folder, which was checked.
        numbers: The file of its numbers.
    """

    def __init__(self, folder: str, numbers: str):
        self._part: RangePart | None = None
        self._error = ""
        try:
            self._part = RangePart(load_index(folder, verify=False), map_array(Path(numbers)))
        except (GrlsError, OSError, ValueError) as error:
            self._error = str(error)

    def facts(self) -> bytes:
        """A message with its size, or why it cannot be opened."""
        if self._part is None:
            return packed({"error": self._error}, ())
        return packed({"facts": facts_of(self._part)._asdict()}, ())

    def answer(self, message: bytes) -> bytes:
        """The answer to a question."""
        if self._part is None:
            return packed({"error": self._error}, ())
        head, arrays = unpacked(message)
        try:
            return packed({}, answer(self._part, head["what"], arrays))
        except GrlsError as error:
            return packed({"error": error.text}, ())


def serve_part(pipe: Connection, folder: str, numbers: str) -> None:
    """Open a part and answer until the pipe closes; this is what a part process runs."""
    part = ServedPart(folder, numbers)
    pipe.send_bytes(part.facts())
    while True:
        try:
            pipe.send_bytes(part.answer(pipe.recv_bytes()))
        except (EOFError, OSError, KeyboardInterrupt):
            return


def packed(head: dict[str, Any], arrays: Arrays) -> bytes:
    """A message as bytes."""
    kept = [np.ascontiguousarray(array, dtype=np.int64) for array in arrays]
    line = json.dumps({**head, "lengths": [len(array) for array in kept]})
    return b"\n".join([line.encode(), b"".join(array.tobytes() for array in kept)])


def unpacked(message: bytes) -> tuple[dict[str, Any], list[Array]]:
    """The head and the arrays of a message."""
    line, _, body = message.partition(b"\n")
    head = json.loads(line)
    arrays, place = [], 0
    for length in head.pop("lengths"):
        arrays.append(np.frombuffer(body, dtype=np.int64, count=length, offset=place))
        place += 8 * length
    return head, arrays


# Parts of an index on the machines of a Ray cluster: each is an actor that opens its part and answers.


class PartsOnRay(IndexParts):
    """Parts in actors of a Ray cluster, spread over its machines, one a part.

    Args:
        places: For each part its folder and the file of its numbers, both checked; all machines see them.
        address: Address of the cluster; see :class:`~grls.cluster.options.Workers`.

    Raises:
        ConfigError: There is no cluster, or a machine of it cannot do the work.
        IndexFormatError: A part has changed meanwhile.
    """

    def __init__(self, places: Sequence[tuple[Path, Path]], address: str):
        self._stack = ExitStack()
        cluster = self._stack.enter_context(Cluster.opened(Workers(address, USUAL_WORKERS)))
        try:
            cluster.check_sees(places[0][1])
            import ray

            # No processor is reserved, so that more parts than processors can start.
            part_on_ray = ray.remote(ServedPart).options(num_cpus=0, scheduling_strategy="SPREAD")
            self._actors = [
                part_on_ray.remote(str(folder.absolute()), str(numbers.absolute()))
                for folder, numbers in places
            ]
            asked = [actor.facts.remote() for actor in self._actors]
            heads = [self._received(part, reply)[0] for part, reply in enumerate(asked)]
        except BaseException:
            self._stack.close()
            raise
        self.facts = [Facts(**head["facts"]) for head in heads]

    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:  # noqa: D102
        message = {part: packed({"what": what}, arrays) for part, arrays in asked.items()}
        replies = {part: self._actors[part].answer.remote(sent) for part, sent in message.items()}
        return {part: self._received(part, reply)[1] for part, reply in replies.items()}

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._stack.close()

    def _received(self, part: int, reply: Any) -> tuple[dict[str, Any], list[Array]]:
        import ray
        from ray.exceptions import RayError

        try:
            head, arrays = unpacked(ray.get(reply))
        except RayError:
            raise ConfigError(
                f"the actor of part {part} of the index has ended (its machine is gone, or for lack of "
                "memory): open the retriever again."
            ) from None
        if "error" in head:
            raise IndexFormatError(head["error"])
        return head, arrays
