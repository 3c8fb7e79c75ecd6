"""The weights of a sparse retriever, encoded in shards and merged on disk.

Legend: N passages, V dimensions (words of the model's vocabulary), Z weights that are not 0.

A shard holds the inverted index of its passages. The merge reads one shard at a time and writes its weights
where they belong in the index of all, so that neither needs memory for all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from grls.cluster.plan import Done, Shard
from grls.data.corpus import Corpus
from grls.io.files import atomic_path
from grls.retrieve.encoded.encode import encoded_range
from grls.retrieve.encoded.shards import PART, Encoded
from grls.retrieve.encoded.tensor_file import TensorForm, begin_tensors
from grls.retrieve.sparse.encode import SparseTexts
from grls.retrieve.sparse.search import InvertedIndex, read_index

WEIGHTS = "embeddings.safetensors"


def encode_weights(encoder: SparseTexts, corpus: Corpus, batch_size: int, shard: Shard, folder: Path) -> int:
    """Write the inverted index of the passages of a shard; returns the number of passages that were cut."""

    def encode(texts: Sequence[str]) -> csr_array:
        return encoder.encode(texts, "passage", batch_size)

    numbers = range(shard.first, shard.end)
    parts = list(encoded_range(encoder, corpus, numbers, encode, PART))
    weights = csr_array(vstack([part for part, _ in parts], format="csr", dtype=np.float32))
    InvertedIndex.of(weights).write(folder / WEIGHTS)
    return sum(cut for _, cut in parts)


def merge_weights(encoded: Encoded, passages: int, dimensions: int) -> Path:
    """Merge the inverted indexes of all shards into one file beside them.

    Args:
        encoded: The shards.
        passages: Number of passages N.
        dimensions: Number of dimensions V.

    Raises:
        DataError: The file of a shard is damaged.
        WriteError: The disk is full.
    """
    counts = sum(np.diff(_opened(one, dimensions).rows.indptr).astype(np.int64) for one in encoded.done)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = int(bounds[-1])
    wide = max(weights, passages) > np.iinfo(np.int32).max
    kind, file = "I64" if wide else "I32", encoded.plan.folder / WEIGHTS
    forms = {"data": TensorForm("F32", (weights,)), "numbers": TensorForm(kind, (weights,))}
    forms["bounds"] = TensorForm(kind, (dimensions + 1,))
    order = sorted(forms, key=lambda name: forms[name].kind != "I64")  # the widest elements first
    with atomic_path(file) as new:
        arrays = begin_tensors(new, {name: forms[name] for name in order})
        arrays["bounds"][:] = bounds
        free = bounds[:-1].copy()
        for one in encoded.done:
            free += _put(_opened(one, dimensions), one.shard.first, free, arrays)
    return file


def _opened(one: Done, dimensions: int) -> InvertedIndex:
    shard = one.shard
    return read_index(one.folder / WEIGHTS, shard.end - shard.first, dimensions)


def _put(index: InvertedIndex, first: int, free: Any, arrays: dict[str, Any]) -> Any:
    """Put the weights of a shard at the free places of their dimensions; returns how many each has."""
    starts, lengths = index.rows.indptr[:-1].astype(np.int64), np.diff(index.rows.indptr).astype(np.int64)
    places = np.repeat(free - starts, lengths) + np.arange(len(index))
    arrays["data"][places] = index.rows.data
    arrays["numbers"][places] = index.rows.indices + first
    return lengths
