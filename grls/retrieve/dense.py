"""Dense retrieval: one embedding a text, compared exactly as the model compares.

Legend: N passages, d embedding dimension, Q queries, R rows that are searched, k hits, W >= k candidates.

The model is a bi-encoder (:mod:`grls.models.biencoder`). Passages are ranked by their similarity to the
query: the inner product, the cosine, or a distance. DONE is embedded like a passage, as row N: it never is
a hit, but multi-step retrieval gets its score. The folder holds the embeddings ``[N + 1, d]`` in
``embeddings.npy``, memory-mapped.

:func:`top_k` lets faiss find candidates in single precision, a block of rows at a time. The last bits of its
scores depend on the number of queries, and its order of ties is arbitrary. So all candidates that could
belong among the k best are scored again in double precision: equal rows get equal scores, in the order of
their numbers. Distances are computed in double precision at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from grls.data.filters import Allow, Numbers
from grls.data.types import Query
from grls.errors import DataError, MismatchError
from grls.index.external_sort import GrowingArray
from grls.io.progress import counted
from grls.io.timing import PartTimer, report_step
from grls.models.base import Floats
from grls.models.biencoder import DONE_TEXT, BiEncoderModel, Matrix
from grls.models.load.opening import packaged_encoder
from grls.retrieve.base import Evidence, HopHits
from grls.retrieve.build import Building
from grls.retrieve.encoded import REBUILD, EncodedRetriever, Parts, read_array, unusable_row

Scores = npt.NDArray[np.float64]

BLOCK = 1 << 16
"""Rows scored together: 100 MiB of 384 numbers each."""

_DISTANCES = {"euclidean": "euclidean", "manhattan": "cityblock"}
"""Similarities that are distances with their sign turned, and their names in SciPy."""

_MARGIN = 8
_SLACK = 1e-5
"""Largest difference of two single-precision scores, relative to the largest, if the true ones are equal."""


class DenseRetriever(EncodedRetriever):
    """Retrieves by the similarity of embeddings; see :class:`EncodedRetriever`."""

    kind = "dense"
    system = "biencoder"
    called = "a dense retriever"
    encodes = BiEncoderModel
    library = "SentenceTransformer"
    file = "embeddings.npy"
    part = 4096
    last_texts = (DONE_TEXT,)
    compares_all = True
    least_score = -math.inf
    teaching_temperature = 0.05
    """The default temperature of a teacher: differences of cosines are small."""

    @property
    def learned_done(self) -> bool | None:
        learned: bool | None = self.encoder.learned_done
        return learned

    @property
    def scores_done(self) -> bool:
        return self.learned_done is True

    @property
    def temperature(self) -> float:
        """That of training: 1 / 20 for vectors of length one, else 1."""
        lengths = np.linalg.norm(self.rows[:16], axis=1)
        return 0.05 if np.allclose(lengths, 1.0, atol=1e-2) else 1.0

    @staticmethod
    def check_rows(rows: Matrix, count: int, dimension: int) -> None:
        if rows.shape != (count, dimension):
            raise MismatchError(
                f"expected embeddings of {counted(count - 1, 'passage')} and DONE, {(count, dimension)}, got "
                f"{rows.shape}: they belong to another corpus or model; {REBUILD}"
            )
        if (wrong := unusable_row(rows)) is not None:
            raise DataError(f"the embedding in row {wrong} is not finite, or above 1e15; {REBUILD}")

    @staticmethod
    def concatenated(parts: list[Matrix]) -> Matrix:
        return np.concatenate(parts)

    @staticmethod
    def write(parts: Parts, file: Path) -> None:
        columns = next(iter(parts())).shape[1]
        with GrowingArray(file, np.float32, columns) as growing:
            for part in parts():
                for start in range(0, len(part), BLOCK):  # a mapped array is never whole in memory
                    growing.append(part[start : start + BLOCK])

    @staticmethod
    def read(file: Path, passages: int, dimension: int) -> Matrix:
        return read_array(file)

    def taken(self, numbers: Numbers) -> Matrix:
        """The number of DONE is N."""
        rows: Matrix = self.rows[numbers]
        return rows

    @staticmethod
    def size(rows: Matrix, passages: int) -> str:
        dimensions = counted(rows.shape[1], "dimension")
        return f", {dimensions}, embeddings {rows.nbytes / 2**20:.1f} MiB"

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of sentence-transformers that gives one vector a text."""
        return super().recognises(packaged_encoder(model))

    built_with = ("limits.input", "similarity", "workers")

    @classmethod
    def loading(cls, building: Building) -> dict[str, Any]:
        return {"kind": "st5" if building.kind == "st5" else "auto", "similarity": building.similarity}

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        vectors, rankings = self._search_after(queries, evidence, k, allow)
        last, similarity = self.rows[-1:], self.encoder.similarity
        done = [float(similarities(vector, last, similarity)[0]) for vector in vectors]
        return [HopHits(hits, score) for hits, score in zip(rankings, done, strict=True)]

    def encode(self, texts: Sequence[str]) -> Matrix:
        """``[Q, d]``."""
        with PartTimer("encoder"):
            vectors: Matrix = self.encoder.encode(texts, "query", self.batch_size, self.progress or None)
        return vectors

    def best(
        self, encoded: Matrix, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        similarity = self.encoder.similarity
        return top_k(encoded[queries], self.rows[:-1], k, among=among, similarity=similarity)

    def score(self, encoded: Matrix, queries: Numbers) -> Floats:
        """Similarities ``[n, N]`` of queries by number, or ``[n, N + 1]`` where DONE is scored."""
        rows = self.rows if self.scores_done else self.rows[:-1]
        if self.encoder.similarity in _DISTANCES:
            return _distances(encoded[queries], rows, self.encoder.similarity)
        return np.asarray(encoded[queries] @ rows.T, dtype=np.float64)


def top_k(
    queries: Matrix,
    rows: Matrix,
    k: int,
    block: int = BLOCK,
    among: Numbers | None = None,
    similarity: str = "dot",
) -> list[tuple[Numbers, Floats]]:
    """The numbers of the k rows that are most similar to each query, exactly, and their similarities.

    The best row is first; equal scores are in the order of numbers.

    Args:
        queries: ``[Q, d]``.
        rows: ``[R, d]``, finite; may be memory-mapped.
        k: Rows a query; all R where there are fewer.
        block: Rows scored together.
        among: Numbers of the rows to search, ascending; None: all.
        similarity: ``euclidean`` and ``manhattan``: by distance; others: by inner product.
    """
    count = len(rows) if among is None else len(among)
    k = min(k, count)
    nearest: list[tuple[Numbers, Floats]] = [(np.empty(0, np.int64), np.empty(0)) for _ in queries]
    if not len(queries) or k < 1:
        return nearest
    if similarity in _DISTANCES:
        every = np.arange(len(rows)) if among is None else among
        for start in range(0, len(every), block):
            taken = every[start : start + block]
            for query, scores in enumerate(_distances(queries, np.asarray(rows[taken]), similarity)):
                numbers = np.concatenate([nearest[query][0], taken])
                exact = np.concatenate([nearest[query][1], scores])
                best = np.lexsort((numbers, -exact))[:k]
                nearest[query] = numbers[best], exact[best]
            report_step()
        return nearest
    candidates = zip(*_candidates(queries, rows, min(k + _MARGIN, count), block, among), strict=True)
    for query, (single, numbers) in enumerate(candidates):
        # Wider, as long as a row beyond the candidates could belong among the k best.
        while len(numbers) < count:
            if float(single[-1]) < float(single[k - 1]) - _SLACK * float(np.abs(single).max()):
                break
            wider = min(4 * len(numbers), count)
            (single,), (numbers,) = _candidates(queries[query][None], rows, wider, block, among)
        exact = similarities(queries[query], rows[numbers])
        best = np.lexsort((numbers, -exact))[:k]
        nearest[query] = numbers[best], exact[best]
    return nearest


def similarities(query: Matrix, rows: Matrix, similarity: str = "dot") -> Scores:
    """Similarities ``[n]`` of a query ``[d]`` to rows ``[n, d]``, the same for equal rows."""
    if similarity in _DISTANCES:
        distances: Scores = _distances(query[None], rows, similarity)[0]
        return distances
    # Not a matrix product: its kernels treat the rows at the end of a tile in another order of summation.
    products: Scores = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return products


def _distances(queries: Matrix, rows: Matrix, similarity: str) -> Scores:
    """Distances ``[Q, R]`` with their sign turned."""
    pairs = (queries.astype(np.float64), rows.astype(np.float64))
    return -np.asarray(cdist(*pairs, _DISTANCES[similarity]))


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
        report_step()
    return scores, numbers
