"""Sparse retrieval: a text is weights of words of a vocabulary, most of them 0, and passages share words.

Legend: N passages, V dimensions (words of the model's vocabulary), Z weights that are not 0.

The model is a ``SparseEncoder`` of sentence-transformers, such as SPLADE (Formal et al. 2021, arXiv
2107.05720). A passage scores the inner product of its weights with the query's, or the cosine where the model
compares by it. The search is exact: the weights of all passages lie by dimension, so a query adds up those of
its own dimensions, in double precision and in one order, and equal passages score alike. As in an inverted
index a passage that scores 0 or less shares nothing with the query and is no hit.

The folder (:mod:`grls.retrieve.encoded`) keeps the weights as ``embeddings.safetensors``: ``data [Z]``,
``numbers [Z]`` of their passages, and ``bounds [V + 1]`` of the dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder

from grls.data.corpus import Corpus
from grls.data.filters import Numbers
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.models.base import Floats
from grls.models.load.build import read_stages
from grls.models.sentence_model import COSINE, DOT, PlainTexts, library_type, open_library_model
from grls.models.text_encoder import Role, TextEncoder
from grls.retrieve.base import AllScores, Description
from grls.retrieve.build import Building
from grls.retrieve.encoded import RanksByScores, encoded_passages, refuse_generative, top

SHARD = 1024
"""Passages encoded between two moves into the sparse matrix."""

_REBUILD = "make it again with `grls index`."


class SparseNetwork(PlainTexts, SparseEncoder):
    """A model of one sparse vector a text."""


class SparseTexts(TextEncoder):
    """Encodes queries and passages as sparse vectors.

    Args:
        model: The network.
        max_tokens: See :class:`~grls.models.text_encoder.TextEncoder`.
        stages: Likewise.

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
                f"config_sentence_transformers.json), but passages are searched by {DOT!r} or {COSINE!r}: "
                "take another model."
            )

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
        longest = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
        rows = []
        for first in range(0, len(texts), batch_size):  # no more than a batch of [n, V] at a time
            found = encode(
                [texts[n] for n in longest[first : first + batch_size]], prompt=self._prompt(role) or "",
                batch_size=batch_size, show_progress_bar=False, convert_to_sparse_tensor=False,
            )  # fmt: skip
            rows.append(csr_array(found.float().cpu().numpy()))
        matrix = csr_array(vstack(rows, format="csr", dtype=np.float32)[np.argsort(longest)])
        if not np.isfinite(matrix.data).all():
            raise DataError(
                "the weights of a text are not finite: the model is damaged or overflows; use float32."
            )
        return _unit(matrix) if self.similarity == COSINE else matrix

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["sparse-1", self.model.max_active_dims], [self.similarity]


class SparseRetriever(RanksByScores):
    """Retrieves by the words that a model weighs in query and passage.

    Args:
        encoder: Encodes the queries.
        corpus: The N passages.
        weights: ``[N, V]`` of the passages, a sparse array.
        batch_size: Texts encoded together.
        truncate_queries: Let queries longer than the limit be cut instead of refusing them.
        progress: Show progress bars.

    Raises:
        DataError: The corpus cannot be used, or a weight is not finite.
        MismatchError: The weights are not those of this corpus and model.
    """

    kind = "sparse"
    called = "a sparse retriever"
    file = "embeddings.safetensors"
    least_score = 0.0

    encoder: SparseTexts

    def __init__(
        self,
        encoder: SparseTexts,
        corpus: Corpus,
        weights: Any,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
    ):
        super().__init__(encoder, corpus, batch_size, truncate_queries, progress)
        expected = (len(corpus), encoder.dimension)
        if weights.shape != expected:
            raise MismatchError(
                f"expected weights of {expected[0]:,} passages in {expected[1]:,} dimensions, got those of "
                f"{weights.shape}: they belong to another corpus or model; {_REBUILD}"
            )
        if not np.isfinite(weights.data).all():
            raise DataError(f"a weight of a passage is not finite; {_REBUILD}")
        self._by_dimension = csr_array(weights.T.tocsr())  # [V, N]

    @property
    def weights(self) -> csr_array:
        """``[N, V]`` of the passages."""
        return csr_array(self._by_dimension.T.tocsr())

    @property
    def temperature(self) -> float:
        """That of training: the library's losses divide cosines by 1 / 20, inner products by nothing."""
        return 0.05 if self.encoder.similarity == COSINE else 1.0

    @classmethod
    def assemble(
        cls,
        encoder: SparseTexts,
        corpus: Corpus,
        batch_size: int = 32,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Encode a corpus and put everything together, in memory.

        Args:
            encoder: The model.
            corpus: The passages.
            batch_size: Texts encoded together.
            progress: Show progress bars.
            options: Other arguments of the constructor.
        """

        def encode(texts: Sequence[str]) -> csr_array:
            return encoder.encode(texts, "passage", batch_size)

        shards = list(encoded_passages(encoder, corpus, encode, SHARD, progress))
        weights = csr_array(vstack(shards, format="csr", dtype=np.float32))
        made = cls(encoder, corpus, weights, batch_size, progress=progress, **options)
        made._encoded_by = encoder.fingerprint()
        return made

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of a ``SparseEncoder``."""
        return Path(model).is_dir() and library_type(model) == SparseEncoder.__name__

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`."""
        refuse_generative(how, "a sparse encoder")
        start = perf_counter()
        encoder = SparseTexts.load(model, how.device, how.limits.input)
        made = cls.assemble(encoder, Corpus.read(corpus), how.batch_size, progress=True)
        made.save_pretrained(how.output)
        count = made._by_dimension.nnz
        return (
            f"{how.output}: {len(made.corpus):,} passages, {count / len(made.corpus):.1f} of "
            f"{encoder.dimension:,} weights each, {8 * count / 2**20:.1f} MiB, "
            f"{perf_counter() - start:.1f} s"
        )

    @classmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> SparseTexts:
        return SparseTexts.load(str(folder), "cpu", manifest["max_tokens"])

    @classmethod
    def _made(
        cls, encoder: SparseTexts, corpus: Corpus, file: Path, checked: bool, options: dict[str, Any]
    ) -> Self:
        return cls(encoder, corpus, _read(file, len(corpus), encoder.dimension), **options)

    def _write(self, file: Path) -> None:
        rows = self._by_dimension
        arrays = {"data": rows.data, "numbers": rows.indices, "bounds": rows.indptr}
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, file)

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        own = {"max_input_tokens": self.encoder.max_tokens, "truncate_queries": self.truncate_queries}
        mode = "cosine" if self.encoder.similarity == COSINE else "inner_product"
        return Description(self.kind, mode, own, stages=self.stages)

    def encode(self, texts: Sequence[str]) -> csr_array:
        """``[n, V]`` weights of the texts of queries."""
        return self.encoder.encode(texts, "query", self.batch_size)

    def best(
        self, asked: csr_array, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """See :class:`~grls.retrieve.encoded.RanksByScores`."""
        numbers = np.arange(len(self.corpus)) if among is None else among
        found = []
        for query in queries:
            scores = self._scores(asked, query)[numbers]
            hits = scores > self.least_score
            found.append(top(scores[hits], numbers[hits], k))
        return found

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """Scores of all passages; see :class:`~grls.retrieve.base.ScoresAll`."""
        asked = self.encode(self.texts(queries, evidence))

        def scores(numbers: Numbers) -> Floats:
            return np.stack([self._scores(asked, query) for query in numbers.tolist()])

        return scores

    def _scores(self, asked: csr_array, query: int) -> Floats:
        """``[N]`` of a query: its dimensions one after another, so that equal passages score alike."""
        begin, end = asked.indptr[query : query + 2]
        found = np.zeros(len(self.corpus))
        rows = self._by_dimension
        for dimension, weight in zip(
            asked.indices[begin:end].tolist(), asked.data[begin:end].tolist(), strict=True
        ):
            first, last = rows.indptr[dimension : dimension + 2]
            found[rows.indices[first:last]] += weight * rows.data[first:last].astype(np.float64)
        return found


def _unit(matrix: csr_array) -> csr_array:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
    each = np.repeat(np.where(lengths == 0, 1.0, lengths), np.diff(matrix.indptr))
    scaled = (matrix.data / each).astype(np.float32)
    return csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)


def _read(file: Path, passages: int, dimensions: int) -> Any:
    """The weights ``[N, V]`` of a folder.

    Raises:
        DataError: The file is damaged.
    """
    try:
        arrays = load_file(file)
        parts = (arrays["data"], arrays["numbers"], arrays["bounds"])
        by_dimension = csr_array(parts, shape=(dimensions, passages))
        by_dimension.check_format(full_check=True)
    except (SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"the weights cannot be read ({error}); {_REBUILD}", file) from None
    return by_dimension.T
