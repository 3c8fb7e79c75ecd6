"""Sparse retrieval: a text becomes weights of words in a vocabulary, most of them 0.

Legend: N passages, V dimensions (words of the model's vocabulary), Z weights that are not 0, n texts.

The model is a ``SparseEncoder`` of sentence-transformers, such as SPLADE (Formal et al. 2021, arXiv
2107.05720). The score of a passage is the inner product of its weights and the query's, or the cosine where
the model compares by cosine. As in an inverted index, a passage with a score of 0 or less is not a hit.

Weights ``[V, N]`` lie by dimension, so a query adds up those of its own dimensions, in double precision and
in one order: equal passages score alike. On disk they are in ``embeddings/``, memory-mapped: ``data [Z]``,
``numbers [Z]`` of their passages, and ``bounds [V + 1]`` of the dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, hstack, vstack
from sentence_transformers import SparseEncoder

from grls.data.filters import Numbers
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.progress import counted
from grls.io.timing import report_step
from grls.models.base import Floats, once_each
from grls.models.load.build import read_stages
from grls.models.load.sentence_folder import modules_of
from grls.models.sentence_model import COSINE, DOT, PlainTexts, Role, open_library_model
from grls.models.text_encoder import TextEncoder, together
from grls.retrieve.encoded import (
    REBUILD,
    EncodedRetriever,
    Parts,
    array_to_fill,
    bounds_of,
    read_array,
    top,
    unusable_row,
)

_TOGETHER = 1 << 22
"""Weights that are written together, in whole dimensions."""


class SparseNetwork(PlainTexts, SparseEncoder):
    """A model of one sparse vector a text."""


class SparseTexts(TextEncoder):
    """Encodes queries and passages as sparse vectors.

    ``similarity`` is ``dot`` or ``cosine``; vectors of a model that compares by cosine have length 1.
    """

    what = "a sparse encoder"

    def __init__(self, model: SparseEncoder, max_tokens: int | None = None, stages: Sequence[str] = ()):
        super().__init__(SparseNetwork.of(model), max_tokens, stages)
        self.similarity = str(model.similarity_fn_name)
        if self.similarity not in (DOT, COSINE):
            raise ConfigError(
                f"the model compares by {self.similarity!r} (similarity_fn_name of its "
                f"config_sentence_transformers.json), but an inverted index adds up products of weights, so "
                f"sparse vectors are compared by {DOT!r} or {COSINE!r} alone: take another model."
            )

        if any(getattr(part, "embedding_dimension", 0) is None for part in modules_of(self.model)):
            for encode in (self.model.encode_query, self.model.encode_document):
                encode(["x"], show_progress_bar=False)  # the library learns it from a text of each role

    @classmethod
    def load(cls, source: str, device: str = "auto", max_tokens: int | None = None) -> Self:
        """Open a model of the library, or a masked language model, which is read as SPLADE reads it."""
        network = open_library_model(SparseEncoder, source, cls.what, "ForMaskedLM")
        return cls(network, max_tokens, read_stages(source)).to(device)

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> csr_array:
        """``[n, V]`` weights of texts, float32."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        if not texts:
            return csr_array((0, self.dimension), dtype=np.float32)
        distinct, numbers = once_each(texts)

        def read(some: Sequence[str], size: int) -> csr_array:
            output = encode(
                list(some), prompt=self._prompt(role), batch_size=size, show_progress_bar=False,
                convert_to_sparse_tensor=False,
            )  # fmt: skip
            return csr_array(output.float().cpu().numpy())

        batch_size = together(self.model, role, distinct, batch_size, read)
        longest = sorted(range(len(distinct)), key=lambda n: -len(distinct[n]))
        rows = []
        for first in range(0, len(distinct), batch_size):  # no more than a batch of [n, V] at a time
            rows.append(read([distinct[n] for n in longest[first : first + batch_size]], batch_size))
        matrix = csr_array(vstack(rows, format="csr", dtype=np.float32)[np.argsort(longest)[numbers]])
        if not np.isfinite(matrix.data).all():
            raise DataError(
                "the weights of a text are not finite: the model is damaged or overflows; use float32."
            )
        if self.similarity != COSINE:
            return matrix
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
        each = np.repeat(np.where(lengths == 0, 1.0, lengths), np.diff(matrix.indptr))
        scaled = (matrix.data / each).astype(np.float32)
        return csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["sparse-1", self.model.max_active_dims], [self.similarity]


class SparseRetriever(EncodedRetriever):
    """Retrieves by the weights of words in query and passage; see :class:`EncodedRetriever`."""

    kind = system = "sparse"
    called = "a sparse retriever"
    encodes = SparseTexts
    library = SparseEncoder.__name__
    file = "embeddings"
    least_score = 0.0

    @property
    def weights(self) -> Any:
        """``[N, V]``."""
        return self.rows.T

    @staticmethod
    def check_rows(rows: csr_array, count: int, dimension: int) -> None:
        if rows.shape != (dimension, count):
            raise MismatchError(
                f"expected weights of {counted(count, 'passage')} in {counted(dimension, 'dimension')}, got "
                f"those of {rows.shape[::-1]}: they belong to another corpus or model; {REBUILD}"
            )
        if unusable_row(rows.data) is not None:
            raise DataError(f"a weight of a passage is not finite, or above 1e15; {REBUILD}")

    @staticmethod
    def rows_of(encoded: csr_array) -> csr_array:
        return csr_array(encoded.T.tocsr())

    @staticmethod
    def concatenated(parts: list[csr_array]) -> csr_array:
        return csr_array(hstack(parts, format="csr", dtype=np.float32))

    @staticmethod
    def write(parts: Parts, file: Path) -> None:
        """The weights of a part go where they belong among those of all."""
        counts, passages = np.zeros(1, np.int64), 0
        for part in parts():
            counts, passages = counts + np.diff(part.indptr), passages + part.shape[1]
        bounds = bounds_of(counts)
        kind = np.int64 if max(int(bounds[-1]), passages) > np.iinfo(np.int32).max else np.int32
        file.mkdir()
        np.save(file / "bounds.npy", bounds.astype(kind))
        data = array_to_fill(file / "data.npy", np.float32, int(bounds[-1]))
        numbers = array_to_fill(file / "numbers.npy", kind, int(bounds[-1]))
        free, before = bounds[:-1].copy(), 0
        for part in parts():
            starts = part.indptr.astype(np.int64)
            lengths = np.diff(starts)
            step = max(1, len(lengths) * _TOGETHER // max(1, part.nnz))
            for first in range(0, len(lengths), step):
                some = slice(first, first + step)
                begin, end = starts[first], starts[min(first + step, len(lengths))]
                positions = np.repeat(free[some] - starts[:-1][some], lengths[some]) + np.arange(begin, end)
                data[positions] = part.data[begin:end]
                numbers[positions] = part.indices[begin:end] + before
            free, before = free + lengths, before + part.shape[1]

    @staticmethod
    def read(file: Path, passages: int, dimension: int) -> csr_array:
        data, integers = read_array(file / "data.npy", np.float32), (np.int32, np.int64)
        numbers, bounds = (read_array(file / f"{name}.npy", *integers) for name in ("numbers", "bounds"))
        try:
            if not data.ndim == numbers.ndim == bounds.ndim == 1:
                raise ValueError("an array has another form")
            rows = csr_array((data, numbers, bounds), shape=(dimension, passages))
            # SciPy looks at no number where the last bound is negative.
            if not len(data) == len(numbers) == (bounds[-1] if len(bounds) else -1):
                raise ValueError("the last bound is not the number of weights")
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < passages):
                raise ValueError(f"the number of a passage is not from 0 to {passages - 1}")
            rows.check_format(full_check=True)
        except ValueError as error:
            raise DataError(f"the weights cannot be read ({error}); {REBUILD}", file) from None
        return rows

    def taken(self, numbers: Numbers) -> csr_array:
        return csr_array(self.rows[:, numbers])

    @staticmethod
    def each(rows: csr_array) -> Any:
        """``[V]`` weights of each passage."""
        return rows.T.toarray()

    @staticmethod
    def size(rows: csr_array, passages: int) -> str:
        dimensions = counted(rows.shape[0], "weight")
        return f", {rows.nnz / passages:.1f} of {dimensions} each, {8 * rows.nnz / 2**20:.1f} MiB"

    def best(
        self, encoded: csr_array, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        numbers = np.arange(len(self.corpus)) if among is None else among
        best = []
        for query in queries:
            scores = self._products(encoded, query)[numbers]
            hits = scores > self.least_score
            best.append(top(scores[hits], numbers[hits], k))
        return best

    def score(self, encoded: csr_array, queries: Numbers) -> Floats:
        """Scores ``[n, N]``."""
        return np.stack([self._products(encoded, query) for query in queries.tolist()])

    def _products(self, encoded: csr_array, query: int) -> Floats:
        """``[N]`` inner products of all passages with a query, its dimensions one after another."""
        begin, end = encoded.indptr[query : query + 2]
        dimensions, weights = encoded.indices[begin:end].tolist(), encoded.data[begin:end].tolist()
        scores = np.zeros(len(self.corpus))
        for dimension, weight in zip(dimensions, weights, strict=True):
            first, last = self.rows.indptr[dimension : dimension + 2]
            scores[self.rows.indices[first:last]] += weight * self.rows.data[first:last].astype(np.float64)
        report_step()
        return scores
