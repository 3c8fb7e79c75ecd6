"""A dense retriever: bi-encoder, embeddings and corpus together, in memory and on disk.

Legend: N passages, d embedding dimension.

Passages are ranked exactly by their similarity to the query, as the model compares: the inner product, the
cosine, or a distance (:mod:`grls.retrieve.dense.search`). DONE is embedded like a passage, as row N: it
never is a hit, but multi-step retrieval gets its score.

The folder holds ``model/``, ``embeddings.npy`` (memory-mapped), ``corpus.jsonl`` and ``grls.json``
(:mod:`grls.retrieve.encoded.folder`).
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np

from grls.cluster.places import alone_at_shards
from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers
from grls.data.inputs.arguments import Count, checked
from grls.data.types import Hit, Passage, Query
from grls.errors import DataError, MismatchError
from grls.index.array_files import map_array
from grls.index.external_sort.npy import GrowingArray
from grls.io.counts import counted
from grls.io.parts import PartTimer
from grls.models.base import Floats
from grls.models.biencoder import BiEncoderModel, Matrix
from grls.models.load.sources import is_packaged
from grls.models.sentence_model import DOT, Kind, library_type
from grls.models.text_encoder import passage_text
from grls.retrieve.base import AllScores, Description, HopHits
from grls.retrieve.build import Building
from grls.retrieve.dense.encode import (
    EMBEDDINGS,
    embedded_rows,
    encode_corpus,
    encode_to_disk,
    work_folder,
)
from grls.retrieve.dense.search import BLOCK, Nearest, all_similarities, similarities, top_k
from grls.retrieve.dense.shards import encode_by_workers
from grls.retrieve.encoded.encode import refuse_unusable_corpus
from grls.retrieve.encoded.folder import REBUILD, all_usable, usable
from grls.retrieve.encoded.retriever import EncodedRetriever, refuse_generative
from grls.retrieve.queries import Reachable, check_counts, queries_of, reachable

log = logging.getLogger(__name__)


class DenseRetriever(EncodedRetriever):
    """Retrieves by the similarity of embeddings.

    Args:
        biencoder: Embeds the queries.
        corpus: The N passages.
        embeddings: ``[N + 1, d]``: row n belongs to passage n, the last one to DONE.
        batch_size: Texts embedded together.
        truncate_queries: Let queries longer than the limit be cut instead of refusing them.
        progress: Show progress bars.
        checked: The embeddings are known to be finite, so they are not read through for it.

    Raises:
        ConfigError: The batch size is not positive.
        DataError: The corpus cannot be used, or an embedding is not finite.
        MismatchError: The embeddings are not those of this corpus and model.
    """

    kind = "dense"
    called = "a dense retriever"
    file = EMBEDDINGS
    least_score = -math.inf
    built_by_workers = True

    def __init__(
        self,
        biencoder: BiEncoderModel,
        corpus: Corpus,
        embeddings: Matrix,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
        checked: bool = False,
    ):
        super().__init__(biencoder, corpus, batch_size, truncate_queries, progress)
        _check_shape(embeddings, len(corpus), biencoder.dimension)
        if not checked:
            _check_finite(embeddings)
        self.biencoder = biencoder
        self.embeddings = embeddings
        self._work: Path | None = None

    @property
    def learned_done(self) -> bool | None:
        """Whether the model has learned when DONE follows; None: not known."""
        return self.biencoder.learned_done

    @classmethod
    def assemble(
        cls,
        biencoder: BiEncoderModel,
        corpus: Corpus,
        work: str | Path | None = None,
        batch_size: int = 32,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Embed a corpus and put everything together.

        Args:
            biencoder: The model.
            corpus: The passages.
            work: A folder where the embeddings grow, so that a killed run can go on and memory stays small
                (:func:`~grls.retrieve.dense.encode.work_folder`); :meth:`save_pretrained` removes it; None:
                in memory.
            batch_size: Texts embedded together.
            progress: Show progress bars.
            options: Other arguments of the constructor.
        """
        check_counts(batch_size=batch_size)
        refuse_unusable_corpus(corpus)
        options |= {"batch_size": batch_size, "progress": progress}
        if work is None:
            embeddings = encode_corpus(biencoder, corpus, batch_size, progress)
        else:
            embeddings = _open(encode_to_disk(biencoder, corpus, work, batch_size, progress))
        made = cls(biencoder, corpus, embeddings, **options)
        made._work = None if work is None else Path(work)
        made._encoded_by = biencoder.fingerprint()
        return made

    def refresh(self, biencoder: BiEncoderModel, work: str | Path | None = None) -> Self:
        """The retriever over the same corpus after the model has changed: every passage is embedded anew."""
        options = {name: getattr(self, name) for name in ("batch_size", "truncate_queries", "progress")}
        return type(self).assemble(biencoder, self.corpus, work, **options)

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of sentence-transformers that gives one vector a text."""
        return is_packaged(model) or (Path(model).is_dir() and library_type(model) == "SentenceTransformer")

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`. A run that was killed goes on."""
        refuse_generative(how, "a bi-encoder")
        start = perf_counter()
        kind: Kind = "st5" if how.asked == "st5" else "auto"
        biencoder = BiEncoderModel.load(model, kind, how.device, how.limits.input, how.similarity)
        passages = Corpus.read(corpus)
        with nullcontext() if how.workers is None else alone_at_shards(how.output):
            retriever = cls._encoded(model, kind, biencoder, passages, how)
            retriever.save_pretrained(how.output)
        size = retriever.embeddings.nbytes / 2**20
        return (
            f"{how.output}: {counted(len(passages), 'passage')} and DONE, "
            f"{counted(biencoder.dimension, 'dimension')}, "
            f"embeddings {size:.1f} MiB, {perf_counter() - start:.1f} s"
        )

    @classmethod
    def _encoded(
        cls, model: str, kind: Kind, biencoder: BiEncoderModel, passages: Corpus, how: Building
    ) -> Self:
        """The retriever, embedded by this process or by workers."""
        if how.workers is None:
            work = work_folder(how.output)
            return cls.assemble(biencoder, passages, work, how.batch_size, progress=True)
        file = encode_by_workers(biencoder, passages, model, kind, how)
        made = cls(biencoder, passages, _open(file), how.batch_size, progress=True)
        made._work, made._encoded_by = file.parent, biencoder.fingerprint()
        return made

    @classmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> BiEncoderModel:
        return BiEncoderModel.load(str(folder), "auto", "cpu", manifest["max_tokens"])

    @classmethod
    def _made(cls, encoder: BiEncoderModel, corpus: Corpus, file: Path, options: dict[str, Any]) -> Self:
        return cls(encoder, corpus, _open(file), **options)

    def _again(self, numbers: list[int]) -> tuple[Matrix, Matrix]:
        texts = [passage_text(passage) for passage in self.corpus.passages(numbers)]
        return self.embeddings[numbers], self.biencoder.encode_passages(texts, self.batch_size)

    def _write(self, file: Path) -> None:
        _write_rows(self.embeddings, file)

    def _write_changed(self, kept: Numbers, added: Corpus | None, file: Path) -> None:
        with GrowingArray(file, np.float32, self.biencoder.dimension) as growing:
            for start in range(0, len(kept), BLOCK):
                growing.append(self.embeddings[kept[start : start + BLOCK]])
            if added is not None:
                rows = range(len(added))
                for part in embedded_rows(self.biencoder, added, rows, self.batch_size, progress=True):
                    growing.append(part)
            growing.append(self.embeddings[-1:])

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder.

        See :class:`~grls.retrieve.encoded.retriever.EncodedRetriever`.
        """
        super().save_pretrained(folder)
        self._leave_work(Path(folder))

    def _leave_work(self, folder: Path) -> None:
        """Read from the saved embeddings from now on, and remove the work folder."""
        if self._work is not None:
            self.embeddings = _open(folder / EMBEDDINGS)
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query, best first; ``Hit.score`` is the similarity.

        Equal scores go in the order of the corpus. DONE is not among the passages.

        Raises:
            ConfigError: k is below 1.
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        queries = queries_of(queries)
        return [step.hits for step in self.retrieve_hop(queries, [()] * len(queries), k, allow)]

    def retrieve_hop(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        allow: Allow = None,
    ) -> list[HopHits]:
        """The top-k passages given those found so far, and the score of DONE.

        Args:
            queries: The queries, with their own texts.
            evidence: For each, the passages found so far, in order.
            k: Most hits a query.
            allow: What may be found; see :class:`~grls.retrieve.base.Retriever`. DONE is always scored.
        """
        check_counts(k=k)
        vectors = self.embed(queries, evidence)
        within = reachable(queries, allow, self.corpus)
        found = self._nearest(vectors, within, k)
        how, last = self.biencoder.similarity, self.embeddings[-1:]
        done = [float(similarities(vector, last, how)[0]) for vector in vectors]
        return [HopHits(self.ids_with(*near), score) for near, score in zip(found, done, strict=True)]

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        own = {"max_input_tokens": self.biencoder.max_tokens, "truncate_queries": self.truncate_queries}
        how = self.biencoder.similarity
        return Description("biencoder", "inner_product" if how == DOT else how, own, stages=self.stages)

    @property
    def temperature(self) -> float:
        """That of training: 1 / 20 for vectors of length one, else 1."""
        lengths = np.linalg.norm(self.embeddings[:16], axis=1)
        return 0.05 if np.allclose(lengths, 1.0, atol=1e-2) else 1.0

    @property
    def scores_done(self) -> bool:
        """Whether DONE is scored: where the model was trained to."""
        return self.learned_done is True

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """Similarities to all embeddings; see :class:`~grls.retrieve.base.ScoresAll`."""
        vectors = self.embed(queries, evidence or [()] * len(queries))
        rows = self.embeddings if self.scores_done else self.embeddings[:-1]

        def scores(numbers: Numbers) -> Floats:
            return all_similarities(vectors[numbers], rows, self.biencoder.similarity)

        return scores

    def embed(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> Matrix:
        """The embeddings of queries with their evidence so far, ``[Q, d]``.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        texts = self.texts(queries, evidence)
        with PartTimer("encoder"):
            return self.biencoder.encode_queries(texts, self.batch_size, self.progress or None)

    def _nearest(self, vectors: Matrix, within: Reachable, k: int) -> list[Nearest]:
        """The k nearest allowed passages of each query; queries with one filter are searched together."""
        results = [Nearest(np.empty(0, np.int64), np.empty(0)) for _ in vectors]
        for place in dict.fromkeys(within.places):
            queries = [query for query, its_place in enumerate(within.places) if its_place == place]
            among = None if place is None else within.sets[place]
            rows, how = self.embeddings[:-1], self.biencoder.similarity
            nearest = top_k(vectors[queries], rows, k, among=among, similarity=how)
            for query, near in zip(queries, nearest, strict=True):
                results[query] = near
        return results


def _check_shape(embeddings: Matrix, passages: int, dimension: int) -> None:
    expected = (passages + 1, dimension)
    if embeddings.shape != expected:
        raise MismatchError(
            f"expected embeddings of {counted(passages, 'passage')} and DONE, {expected}, got "
            f"{embeddings.shape}: they belong to another corpus or model; {REBUILD}"
        )


def _check_finite(embeddings: Matrix) -> None:
    for start in range(0, len(embeddings), BLOCK):
        block = embeddings[start : start + BLOCK]
        if not all_usable(block):
            wrong = np.flatnonzero(~usable(block).all(axis=1))
            raise DataError(
                f"the embedding in row {start + int(wrong[0])} is not finite, or above 1e15; {REBUILD}"
            )


def _open(file: Path) -> Matrix:
    """Embeddings, memory-mapped."""
    try:
        mapped: Matrix = map_array(file)
    except ValueError as error:
        raise DataError(f"the embeddings cannot be read ({error}); {REBUILD}", file) from None
    return mapped


def _write_rows(rows: Matrix, file: Path) -> None:
    """Write an array as ``.npy``, a block at a time, so that a mapped one is never whole in memory."""
    with file.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": rows.shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(rows), BLOCK):
            stream.write(np.ascontiguousarray(rows[start : start + BLOCK], dtype="<f4").data)
