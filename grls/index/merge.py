"""Merges two sorted segments and removes passages, in one pass and without sorting again.

Legend: N passages and R rows. :class:`grls.index.union.UnionIndex` knows the places of the added rows among
the base rows, so the merge only copies rows and compares neighbours.
"""

from __future__ import annotations

import numpy as np

from grls.index.base import ConstraintIndex, Segment
from grls.index.rows import (
    Array,
    Ints,
    Offsets,
    Rows,
    gather,
    kept_lengths,
    narrow,
    shared_prefixes,
    unsigned,
)
from grls.index.union import UnionIndex


def merge(index: ConstraintIndex, keep: Array) -> Segment:
    """One segment with selected passages of an index, equal to a segment that is built from scratch.

    It is made in memory, including all tokens. In the form ``prefixes``, tokens may take fewer bytes than
    from scratch, since the rest of a passage is missing and may hold larger token ids.

    Args:
        index: A segment, or a union of two.
        keep: ``[N]`` bool; the passages to keep. They are renumbered in their order.

    Raises:
        TypeError: The index is of another class.
    """
    backend: type[Segment]
    starts: Ints  # [R] the start of each row in the concatenated tokens of the segments
    if isinstance(index, UnionIndex):
        segments, backend = [index.base, index.added], type(index.base)
        base, added = index.base.rows, index.added.rows
        starts = np.empty(len(index.rows), dtype=np.int64)
        place, new = index.rows.places, index.rows.new
        old = np.ones(len(index.rows), dtype=bool)
        old[place[new]] = False
        starts[old] = base.offsets.all()[:-1]
        starts[place[new]] = len(base.tokens) + added.offsets.all()[:-1][new]
    elif isinstance(index, Segment):
        segments, backend = [index], type(index)
        starts = index.rows.offsets.all()[:-1]
    else:
        raise TypeError(f"cannot merge a {type(index).__name__}")
    members = index.rows.members_in(0, len(index.rows))  # those that stay, renumbered and grouped by row
    stay = keep[members]
    sizes = np.bincount(index.rows.row_of[members].astype(np.int64)[stay], minlength=len(index.rows))
    members = (np.cumsum(keep) - 1)[members[stay]]
    left = np.flatnonzero(sizes)
    lengths = index.rows.lengths()[left]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    wide = np.result_type(*[segment.rows.tokens.dtype for segment in segments])
    tokens = np.concatenate([segment.rows.tokens.astype(wide, copy=False) for segment in segments])
    tokens = gather(tokens, starts[left], offsets)
    shared = shared_prefixes(tokens, offsets)
    if index.rows.form == "prefixes":  # without a removed neighbour, fewer tokens identify a row
        lengths = kept_lengths(lengths, shared, 0, "prefixes")
        starts, offsets = offsets[:-1], np.concatenate(([0], np.cumsum(lengths)))
        tokens = gather(tokens, starts, offsets)
    kind = unsigned(len(members))
    rows = Rows(
        tokens=narrow(tokens),
        offsets=Offsets.pack(offsets),
        members=members.astype(kind),
        member_offsets=(
            np.concatenate(([0], np.cumsum(sizes[left]))).astype(kind)
            if len(left) < len(members)
            else np.empty(0, dtype=kind)
        ),
        end=index.rows.end,
        longest=int(lengths.max(initial=0)),
        form=index.rows.form,
    )
    return backend.build(rows, shared)
