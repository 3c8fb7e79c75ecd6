"""Exact search for the rows of largest inner product with a query, or of smallest distance, in blocks.

Legend: Q queries, N rows (embeddings), d dimension, k hits asked for, W >= k candidates.

faiss finds candidates in single precision (with the kernel of its ``IndexFlatIP``, without the copy of an
index): rows may be memory-mapped, and only a block of them is scored at a time. The last bits of its scores
depend on the number of queries, and its order of ties is arbitrary. So all candidates that could belong among
the k best are scored again in double precision: equal rows get equal scores, in the order of their numbers.
Distances are computed in double precision at once. The module knows nothing of texts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from grls.data.filters import Numbers
from grls.models.biencoder import Matrix

Scores = npt.NDArray[np.float64]

BLOCK = 1 << 16
"""Rows scored together: 100 MiB of 384 numbers each."""

_DISTANCES = {"euclidean": "euclidean", "manhattan": "cityblock"}
"""Similarities that are distances with their sign turned, and their names in SciPy."""

_MARGIN = 8
_SLACK = 1e-5
"""Largest difference of two single-precision scores, relative to the largest, if the true ones are equal."""


class Nearest(NamedTuple):
    """The rows that are most similar to one query.

    Attributes:
        numbers: Row numbers, best first; equal scores in order of number.
        scores: Their similarities.
    """

    numbers: Numbers
    scores: Scores


def top_k(
    queries: Matrix,
    rows: Matrix,
    k: int,
    block: int = BLOCK,
    among: Numbers | None = None,
    similarity: str = "dot",
) -> list[Nearest]:
    """The k rows that are most similar to each query, exactly.

    Args:
        queries: ``[Q, d]``.
        rows: ``[N, d]``, finite; may be memory-mapped.
        k: Rows a query; all N where there are fewer.
        block: Rows scored together.
        among: Numbers of the rows to search, ascending; None: all.
        similarity: ``euclidean`` and ``manhattan``: by distance; others: by inner product.
    """
    count = len(rows) if among is None else len(among)
    k = min(k, count)
    if not len(queries) or k < 1:
        return [Nearest(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    if similarity in _DISTANCES:
        return _by_distance(queries, rows, k, block, among, similarity)
    scores, numbers = _candidates(queries, rows, min(k + _MARGIN, count), block, among)
    nearest = []
    for query, best, candidates in zip(queries, scores, numbers, strict=True):
        while len(candidates) < count and _more_may_tie(best, k):
            wider = min(4 * len(candidates), count)
            (best,), (candidates,) = _candidates(query[None], rows, wider, block, among)
        nearest.append(_rank(query, rows, candidates, k))
    return nearest


def similarities(query: Matrix, rows: Matrix, similarity: str = "dot") -> Scores:
    """Similarities ``[n]`` of a query ``[d]`` to rows ``[n, d]``, the same for equal rows (:func:`top_k`)."""
    if similarity in _DISTANCES:
        distances: Scores = _distances(query[None], rows, similarity)[0]
        return distances
    # Not a matrix product: its kernels treat the rows at the end of a tile in another order of summation.
    products: Scores = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return products


def all_similarities(queries: Matrix, rows: Matrix, similarity: str = "dot") -> Scores:
    """Similarities ``[Q, N]`` of queries to all rows; see :func:`top_k`."""
    if similarity in _DISTANCES:
        return _distances(queries, rows, similarity)
    return np.asarray(queries @ rows.T, dtype=np.float64)


def _distances(queries: Matrix, rows: Matrix, similarity: str) -> Scores:
    """Distances ``[Q, N]`` with their sign turned."""
    pairs = (queries.astype(np.float64), rows.astype(np.float64))
    return -np.asarray(cdist(*pairs, _DISTANCES[similarity]))


def _by_distance(
    queries: Matrix, rows: Matrix, k: int, block: int, among: Numbers | None, similarity: str
) -> list[Nearest]:
    nearest = [Nearest(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    numbers = np.arange(len(rows)) if among is None else among
    for start in range(0, len(numbers), block):
        taken = numbers[start : start + block]
        for query, scores in enumerate(_distances(queries, np.asarray(rows[taken]), similarity)):
            candidates = np.concatenate([nearest[query].numbers, taken])
            values = np.concatenate([nearest[query].scores, scores])
            best = np.lexsort((candidates, -values))[:k]
            nearest[query] = Nearest(candidates[best], values[best])
    return nearest


def _candidates(
    queries: Matrix, rows: Matrix, width: int, block: int, among: Numbers | None
) -> tuple[Matrix, Numbers]:
    """Single-precision scores ``[Q, W]``, falling, and row numbers ``[Q, W]`` of the W best rows."""
    count = len(rows) if among is None else len(among)
    scores = np.empty((len(queries), 0), dtype=np.float32)
    numbers = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, count, block):
        stop = min(start + block, count)
        taken = np.arange(start, stop) if among is None else among[start:stop]
        part = np.ascontiguousarray(rows[start:stop] if among is None else rows[taken])
        nearest: Any = faiss.knn(queries, part, min(width, len(part)), faiss.METRIC_INNER_PRODUCT)
        scores = np.concatenate([scores, nearest[0]], axis=1)
        numbers = np.concatenate([numbers, taken[nearest[1]]], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :width]
        scores = np.take_along_axis(scores, best, axis=1)
        numbers = np.take_along_axis(numbers, best, axis=1)
    return scores, numbers


def _more_may_tie(scores: Matrix, k: int) -> bool:
    """Whether a row beyond the candidates could belong among the k best."""
    slack = _SLACK * float(np.abs(scores).max())
    return float(scores[-1]) >= float(scores[k - 1]) - slack


def _rank(query: Matrix, rows: Matrix, candidates: Numbers, k: int) -> Nearest:
    scores = similarities(query, rows[candidates])
    best = np.lexsort((candidates, -scores))[:k]
    return Nearest(candidates[best], scores[best])
