"""Sparse retrieval: a text becomes weights of words in a vocabulary, most of them 0.

Legend: N passages, V dimensions (words of the model's vocabulary).

The model is a ``SparseEncoder`` of sentence-transformers, such as SPLADE (Formal et al. 2021, arXiv
2107.05720). The score of a passage is the inner product of its weights and the query's, or the cosine where
the model compares by cosine. As in an inverted index, a passage with a score of 0 or less has no common word
with the query and is not a hit. The folder (:mod:`grls.retrieve.encoded.folder`) keeps the weights as
``embeddings.safetensors``, memory-mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder

from grls.cluster.places import alone_at_shards, seen_elsewhere
from grls.data.corpus import Corpus
from grls.data.filters import Numbers
from grls.data.types import Passage, Query
from grls.errors import DataError, MismatchError
from grls.io.counts import counted
from grls.io.parts import PartTimer
from grls.models.base import Floats
from grls.models.sentence_model import COSINE, library_type
from grls.models.text_encoder import passage_text
from grls.retrieve.base import AllScores, Description
from grls.retrieve.build import Building
from grls.retrieve.encoded.encode import encoded_passages
from grls.retrieve.encoded.folder import REBUILD
from grls.retrieve.encoded.ranking import RanksByScores, top
from grls.retrieve.encoded.retriever import refuse_generative
from grls.retrieve.encoded.shards import PART, Encoding, shard_size
from grls.retrieve.sparse.encode import SparseTexts
from grls.retrieve.sparse.search import InvertedIndex, all_finite, read_index
from grls.retrieve.sparse.shards import WEIGHTS, encode_weights, merge_weights


class SparseRetriever(RanksByScores):
    """Retrieves by the weights of words in query and passage.

    Args:
        encoder: Encodes the queries.
        corpus: The N passages.
        weights: ``[N, V]`` weights of the passages, a sparse array.
        batch_size: Texts encoded together.
        truncate_queries: Cut queries longer than the limit; false refuses them.
        progress: Show progress bars.

    Raises:
        DataError: The corpus cannot be used, or a weight is not finite.
        MismatchError: The weights are not those of this corpus and model.
    """

    kind = "sparse"
    called = "a sparse retriever"
    file = WEIGHTS
    built_by_workers = True
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
                f"expected weights of {counted(expected[0], 'passage')} in "
                f"{counted(expected[1], 'dimension')}, got those of "
                f"{weights.shape}: they belong to another corpus or model; {REBUILD}"
            )
        if not all_finite(weights.data):
            raise DataError(f"a weight of a passage is not finite, or above 1e15; {REBUILD}")
        self._index = InvertedIndex.of(weights)

    @property
    def weights(self) -> csr_array:
        """``[N, V]`` of the passages."""
        return csr_array(self._index.weights)

    @property
    def temperature(self) -> float:
        """The temperature of training: 1 / 20 for cosines, 1 for inner products."""
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
        weights = _joined(_shards(encoder, corpus, batch_size, progress))
        made = cls(encoder, corpus, weights, batch_size, progress=progress, **options)
        made._encoded_by = encoder.fingerprint()
        return made

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of a ``SparseEncoder``."""
        return Path(model).is_dir() and library_type(model) == SparseEncoder.__name__

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`. A run that was killed goes on."""
        refuse_generative(how, "a sparse encoder")
        how.refuse_unused("a sparse encoder", ("similarity",))
        start = perf_counter()
        place, passages = seen_elsewhere(model), Corpus.read(corpus)
        load = partial(SparseTexts.load, place, how.device, how.limits.input)
        encoding = Encoding("weights", load, encode_weights, place, how.batch_size, how.output, how.workers)
        encoder = load()
        with alone_at_shards(how.output):
            encoded = encoding.shards(encoder, passages, len(passages), shard_size(how.workers))
            file = merge_weights(encoded, len(passages), encoder.dimension)
            made = cls(encoder, passages, read_index(file, len(passages), encoder.dimension).weights)
            made._encoded_by = encoder.fingerprint()
            made.save_pretrained(how.output)
            encoded.plan.remove()
        count = len(made._index)
        return (
            f"{how.output}: {counted(len(made.corpus), 'passage')}, {count / len(made.corpus):.1f} of "
            f"{counted(encoder.dimension, 'weight')} each, {8 * count / 2**20:.1f} MiB, "
            f"{perf_counter() - start:.1f} s"
        )

    @classmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> SparseTexts:
        return SparseTexts.load(str(folder), "cpu", manifest["max_tokens"])

    @classmethod
    def _made(cls, encoder: SparseTexts, corpus: Corpus, file: Path, options: dict[str, Any]) -> Self:
        return cls(encoder, corpus, read_index(file, len(corpus), encoder.dimension).weights, **options)

    def _again(self, numbers: list[int]) -> tuple[Floats, Floats]:
        texts = [passage_text(passage) for passage in self.corpus.passages(numbers)]
        again = self.encoder.encode(texts, "passage", self.batch_size)
        return self.weights[numbers].toarray(), again.toarray()

    def _write(self, file: Path) -> None:
        self._index.write(file)

    def _write_changed(self, kept: Numbers, added: Corpus | None, file: Path) -> None:
        shards = [self.weights[kept]] if len(kept) else []
        if added is not None:
            shards += _shards(self.encoder, added, self.batch_size, progress=True)
        InvertedIndex.of(_joined(shards)).write(file)

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        own = {"max_input_tokens": self.encoder.max_tokens, "truncate_queries": self.truncate_queries}
        mode = "cosine" if self.encoder.similarity == COSINE else "inner_product"
        return Description(self.kind, mode, own, stages=self.stages)

    def encode(self, texts: Sequence[str]) -> csr_array:
        """``[n, V]`` weights of the texts of queries."""
        with PartTimer("encoder"):
            return self.encoder.encode(texts, "query", self.batch_size)

    def best(
        self, asked: csr_array, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """See :class:`~grls.retrieve.encoded.ranking.RanksByScores`."""
        numbers = np.arange(len(self.corpus)) if among is None else among
        found = []
        for query in queries:
            scores = self._index.scores(asked, query)[numbers]
            hits = scores > self.least_score
            found.append(top(scores[hits], numbers[hits], k))
        return found

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """Scores of all passages; see :class:`~grls.retrieve.base.ScoresAll`."""
        asked = self.encode(self.texts(queries, evidence))

        def scores(numbers: Numbers) -> Floats:
            return np.stack([self._index.scores(asked, query) for query in numbers.tolist()])

        return scores


def _shards(encoder: SparseTexts, corpus: Corpus, batch_size: int, progress: bool) -> list[csr_array]:
    """The weights of a corpus, a shard of passages at a time."""

    def encode(texts: Sequence[str]) -> csr_array:
        return encoder.encode(texts, "passage", batch_size)

    return list(encoded_passages(encoder, corpus, encode, PART, progress))


def _joined(shards: Sequence[Any]) -> csr_array:
    """The weights of shards in one array ``[N, V]``."""
    return csr_array(vstack(shards, format="csr", dtype=np.float32))
