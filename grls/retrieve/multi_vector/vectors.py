"""The vectors of all passages: in memory, and as a memory-mapped safetensors file.

Legend: N passages, T tokens of all passages, d dimension.

The file holds ``vectors [T, d]``, and ``bounds [N + 1]`` of the passages in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grls.data.filters import Numbers
from grls.errors import DataError, MismatchError
from grls.index.external_sort.npy import GrowingArray
from grls.io.counts import counted
from grls.models.biencoder import Matrix
from grls.retrieve.encoded.folder import REBUILD, all_usable, usable
from grls.retrieve.encoded.tensor_file import map_tensors, write_tensors

_BLOCK = 1 << 14
"""Vectors that are checked together."""


class TokenVectors(NamedTuple):
    """Vectors of passages.

    Attributes:
        vectors: ``[T, d]``, float32; may be memory-mapped.
        bounds: ``[N + 1]``: passage n has the vectors from ``bounds[n]`` to ``bounds[n + 1]``.
    """

    vectors: Matrix
    bounds: Numbers


def bounds_of(lengths: Sequence[int]) -> Numbers:
    """Bounds ``[N + 1]`` of passages with so many vectors each."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def grow_vectors(shards: Iterator[list[Matrix]], file: Path, dimension: int) -> TokenVectors:
    """Write vectors to a ``.npy`` file as they come, and open them, memory-mapped.

    Args:
        shards: The vectors of passages, shard after shard, in order.
        file: The file to write.
        dimension: The dimension d.
    """
    lengths: list[int] = []
    with GrowingArray(file, np.float32, dimension) as growing:
        for shard in shards:
            growing.append(np.concatenate(shard))
            lengths += [len(one) for one in shard]
    return TokenVectors(np.load(file, mmap_mode="r").view(np.ndarray), bounds_of(lengths))


def write_vectors(tokens: TokenVectors, file: Path) -> None:
    """Write vectors as safetensors, a block at a time, so that mapped ones are never whole in memory."""
    write_tensors(file, {"vectors": tokens.vectors, "bounds": tokens.bounds})


def read_vectors(file: Path) -> TokenVectors:
    """Open what :func:`write_vectors` wrote, memory-mapped.

    Raises:
        DataError: The file is damaged.
    """
    parts = map_tensors(file, {"vectors": ("F32",), "bounds": ("I64",)})
    return TokenVectors(parts["vectors"], np.array(parts["bounds"]))


def check_form(tokens: TokenVectors, passages: int, dimension: int) -> None:
    """Check that vectors are those of so many passages.

    Raises:
        MismatchError: Their shape or their bounds do not fit.
    """
    vectors, bounds = tokens
    fits = vectors.ndim == 2 and vectors.shape[1] == dimension and bounds.shape == (passages + 1,)
    if not fits or bounds[0] != 0 or bounds[-1] != len(vectors) or (np.diff(bounds) < 0).any():
        raise MismatchError(
            f"expected vectors of {counted(passages, 'passage')} in {counted(dimension, 'dimension')}, got "
            f"{vectors.shape} for {len(bounds) - 1:,}: they belong to another corpus or model; {REBUILD}"
        )


def check_finite(tokens: TokenVectors) -> None:
    """Check all numbers.

    Raises:
        DataError: One is not finite.
    """
    for start in range(0, len(tokens.vectors), _BLOCK):
        block = tokens.vectors[start : start + _BLOCK]
        if not all_usable(block):
            wrong = np.flatnonzero(~usable(block).all(axis=1))
            passage = int(np.searchsorted(tokens.bounds, start + int(wrong[0]), side="right")) - 1
            raise DataError(f"a vector of passage {passage} is not finite, or above 1e15; {REBUILD}")
