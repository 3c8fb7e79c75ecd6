"""The vectors of a multi-vector retriever, encoded in shards and joined on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from grls.cluster.plan import Shard
from grls.data.corpus import Corpus
from grls.index.external_sort.npy import GrowingArray
from grls.io.files import atomic_path
from grls.models.biencoder import Matrix
from grls.retrieve.encoded.encode import encoded_range
from grls.retrieve.encoded.shards import PART, Encoded
from grls.retrieve.multi_vector.encode import LateTexts
from grls.retrieve.multi_vector.vectors import TokenVectors, bounds_of, grow_vectors

_VECTORS, _LENGTHS = "vectors.npy", "lengths.npy"


def encode_vectors(encoder: LateTexts, corpus: Corpus, batch_size: int, shard: Shard, folder: Path) -> int:
    """Write the vectors of the passages of a shard; returns the number of passages that were cut."""
    cut = 0

    def encode(texts: Sequence[str]) -> list[Matrix]:
        return encoder.encode(texts, "passage", batch_size)

    def parts() -> Iterator[list[Matrix]]:
        nonlocal cut
        numbers = range(shard.first, shard.end)
        for part, short in encoded_range(encoder, corpus, numbers, encode, PART):
            cut += short
            yield part

    tokens = grow_vectors(parts(), folder / _VECTORS, encoder.dimension)
    np.save(folder / _LENGTHS, np.diff(tokens.bounds))
    return cut


def join_vectors(encoded: Encoded, dimension: int) -> TokenVectors:
    """The vectors of all shards, in one memory-mapped file beside them.

    Args:
        encoded: The shards.
        dimension: The dimension d.

    Raises:
        WriteError: The disk is full.
    """
    file, folders = encoded.plan.folder / _VECTORS, [one.folder for one in encoded.done]
    with atomic_path(file) as new, GrowingArray(new, np.float32, dimension) as growing:
        for folder in folders:
            growing.append(np.load(folder / _VECTORS, mmap_mode="r"))
    lengths = np.concatenate([np.load(folder / _LENGTHS) for folder in folders])
    return TokenVectors(np.load(file, mmap_mode="r").view(np.ndarray), bounds_of(lengths.tolist()))
