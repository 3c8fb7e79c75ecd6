"""Cuts an index into prefix ranges, and opens them.

The folder holds ``ranges.json`` (format, number of parts, whether they run in processes or on Ray,
fingerprints) and a folder for each part, ``part-0``, ``part-1`` and so on: an index of consecutive rows. It
numbers its passages from 0; ``numbers-0.npy`` and so on hold their numbers in the whole index. A part names
the whole and its place as its corpus, so that it is not taken for a whole index.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.cluster.options import USUAL_WORKERS, workers_of
from grls.errors import ConfigError, IndexFormatError, MismatchError, Option
from grls.index.array import ArrayIndex
from grls.index.array_files import REBUILD, describe_arrays, is_entry, load_arrays
from grls.index.base import ConstraintIndex
from grls.index.ranges.parts import IndexParts, PartsHere, RangePart
from grls.index.ranges.ranged import MOST_PARTS, RangedIndex
from grls.index.ranges.remote import PartsElsewhere
from grls.index.rows import Ints, Offsets, Rows, shared_prefixes, unsigned
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
    _refuse_other_numbers(parts, folder)
    return RangedIndex(_served(record, places, parts))


def _served(
    record: dict[str, Any], places: Sequence[tuple[Path, Path]], parts: Sequence[RangePart]
) -> IndexParts:
    """The parts in this process, in other ones, or on other machines."""
    if record["ray"] is not None:
        from grls.index.ranges.on_ray import PartsOnRay

        return PartsOnRay(places, record["ray"])
    return PartsElsewhere(places) if record["processes"] else PartsHere(parts)


def _refuse_other_numbers(parts: Sequence[RangePart], folder: Path) -> None:
    """Refuse numbers that are not those of the passages of the parts."""
    total = sum(len(part.segment) for part in parts)
    for place, (index, numbers) in enumerate(parts):
        good = numbers.ndim == 1 and numbers.dtype.kind == "u" and len(numbers) == len(index)
        if not good or int(numbers.max(initial=0)) >= max(total, 1):
            raise IndexFormatError(
                f"{folder / f'numbers-{place}.npy'}: these are not the numbers of {len(index):,} of "
                f"{total:,} passages; {REBUILD}"
            )


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
