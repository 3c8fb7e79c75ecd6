"""The exact search over sparse vectors: an inverted index.

Legend: N passages, V dimensions (words of the model's vocabulary), Z weights that are not 0.

The weights of all passages lie by dimension, so a query adds up those of its own dimensions, in double
precision and in one order: equal passages score alike. On disk they are a safetensors file of ``data [Z]``,
``numbers [Z]`` of their passages, and ``bounds [V + 1]`` of the dimensions. The module knows nothing of
texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from grls.errors import DataError
from grls.models.base import Floats
from grls.retrieve.encoded.folder import REBUILD, all_usable
from grls.retrieve.encoded.tensor_file import map_tensors, write_tensors

_KINDS = {"data": ("F32",), "numbers": ("I32", "I64"), "bounds": ("I32", "I64")}
"""The arrays of a file, and the types that they may have."""
_BLOCK = 1 << 20
"""Weights that are checked together."""


@dataclass(frozen=True)
class InvertedIndex:
    """The weights of passages by dimension.

    Args:
        rows: ``[V, N]``, a sparse array of rows.
    """

    rows: csr_array

    @classmethod
    def of(cls, weights: Any) -> InvertedIndex:
        """The index of ``[N, V]`` weights, a sparse array."""
        return cls(csr_array(weights.T.tocsr()))

    def __len__(self) -> int:
        """Weights that are stored."""
        return int(self.rows.nnz)

    @property
    def weights(self) -> Any:
        """``[N, V]`` of the passages, by dimension."""
        return self.rows.T

    def scores(self, queries: csr_array, query: int) -> Floats:
        """``[N]`` inner products of all passages with one query, a row of ``[n, V]`` weights.

        Its dimensions are added one after another, so that equal passages score alike.
        """
        begin, end = queries.indptr[query : query + 2]
        dimensions, weights = queries.indices[begin:end].tolist(), queries.data[begin:end].tolist()
        scores = np.zeros(self.rows.shape[1])
        for dimension, weight in zip(dimensions, weights, strict=True):
            first, last = self.rows.indptr[dimension : dimension + 2]
            scores[self.rows.indices[first:last]] += weight * self.rows.data[first:last].astype(np.float64)
        return scores

    def write(self, file: Path) -> None:
        """Write the weights as safetensors, which may be memory-mapped, a block at a time."""
        arrays = {"data": self.rows.data, "numbers": self.rows.indices, "bounds": self.rows.indptr}
        widest = sorted(arrays, key=lambda name: -arrays[name].itemsize)
        write_tensors(file, {name: arrays[name] for name in widest})


def read_index(file: Path, passages: int, dimensions: int) -> InvertedIndex:
    """The index of a file that :meth:`InvertedIndex.write` wrote, memory-mapped.

    Raises:
        DataError: The file is damaged.
    """
    arrays = map_tensors(file, _KINDS)
    try:
        parts = (arrays["data"], arrays["numbers"], arrays["bounds"])
        by_dimension = csr_array(parts, shape=(dimensions, passages))
        _refuse_outside(*parts, passages)
        by_dimension.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"the weights cannot be read ({error}); {REBUILD}", file) from None
    return InvertedIndex(by_dimension)


def _refuse_outside(data: Any, numbers: Any, bounds: Any, passages: int) -> None:
    """Refuse bounds beyond the weights, and unknown passages.

    SciPy looks at no number where the last bound is negative.

    Raises:
        ValueError: A bound or a number is out of range.
    """
    if not len(data) == len(numbers) == (bounds[-1] if len(bounds) else -1):
        raise ValueError("the last bound is not the number of weights")
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < passages):
        raise ValueError(f"the number of a passage is not from 0 to {passages - 1}")


def all_finite(numbers: Any) -> bool:
    """Whether all numbers of a long array can be searched with; a block is read at a time."""
    blocks = (numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK))
    return all(map(all_usable, blocks))
