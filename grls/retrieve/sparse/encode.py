"""Texts as sparse vectors: weights of the words of a vocabulary, most of them 0.

Legend: n texts, V dimensions (words of the model's vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder

from grls.errors import ConfigError, DataError
from grls.models.base import once_each
from grls.models.load.build import read_stages
from grls.models.load.sentence_folder import modules_of
from grls.models.sentence_model import COSINE, DOT, PlainTexts, Role, open_library_model
from grls.models.text_encoder import TextEncoder


class SparseNetwork(PlainTexts, SparseEncoder):
    """A model of one sparse vector a text."""


class SparseTexts(TextEncoder):
    """Encodes queries and passages as sparse vectors.

    Args:
        model: The network.
        max_tokens: See :class:`~grls.models.text_encoder.TextEncoder`.
        stages: The training stages that the model has gone through.

    Raises:
        ConfigError: The model compares by a distance.

    Attributes:
        similarity: ``dot`` or ``cosine``. Vectors of a model that compares by cosine have length 1.
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

        if self._undecided:
            self.model.encode_query(["x"], show_progress_bar=False)  # the library learns it from a text

    @property
    def _undecided(self) -> bool:
        """Whether a part of the model does not know its dimension yet."""
        return any(getattr(part, "embedding_dimension", 0) is None for part in modules_of(self.model))

    @classmethod
    def load(cls, source: str, device: str = "auto", max_tokens: int | None = None) -> Self:
        """Open a model: of the library, or a masked language model, which is read as SPLADE reads it.

        Args:
            source: Folder or hub name.
            device: ``cpu``, ``cuda``, …; ``auto`` takes a GPU where there is one.
            max_tokens: Longest text in tokens; None: what the model says.

        Raises:
            ConfigError: There is no such model, or it is something else.
        """
        network = open_library_model(SparseEncoder, source, cls.what, "ForMaskedLM")
        return cls(network, max_tokens, read_stages(source)).to(device)

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> csr_array:
        """``[n, V]`` weights of texts, float32, of length 1 where the model compares by cosine.

        Raises:
            DataError: A weight is not finite.
        """
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        if not texts:
            return csr_array((0, self.dimension), dtype=np.float32)
        distinct, numbers = once_each(texts)
        longest = sorted(range(len(distinct)), key=lambda n: -len(distinct[n]))
        rows = []
        for first in range(0, len(distinct), batch_size):  # no more than a batch of [n, V] at a time
            found = encode(
                [distinct[n] for n in longest[first : first + batch_size]], prompt=self._prompt(role),
                batch_size=batch_size, show_progress_bar=False, convert_to_sparse_tensor=False,
            )  # fmt: skip
            rows.append(csr_array(found.float().cpu().numpy()))
        matrix = csr_array(vstack(rows, format="csr", dtype=np.float32)[np.argsort(longest)[numbers]])
        if not np.isfinite(matrix.data).all():
            raise DataError(
                "the weights of a text are not finite: the model is damaged or overflows; use float32."
            )
        return _unit(matrix) if self.similarity == COSINE else matrix

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["sparse-1", self.model.max_active_dims], [self.similarity]


def _unit(matrix: csr_array) -> csr_array:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
    each = np.repeat(np.where(lengths == 0, 1.0, lengths), np.diff(matrix.indptr))
    scaled = (matrix.data / each).astype(np.float32)
    return csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)
