"""Late interaction: a vector for each token; each query token is matched with its nearest passage token.

The model is a ``MultiVectorEncoder`` of sentence-transformers, such as ColBERT (Khattab and Zaharia 2020,
arXiv 2004.12832). The score of a passage p is MaxSim, the sum over the query's vectors q_i of max_j q_i .
p_j; some models take the mean over i. The search (:mod:`grls.retrieve.multi_vector.search`) is exact, over
all passages or over those that a first retriever proposes.

The folder (:mod:`grls.retrieve.encoded.folder`) keeps the vectors as ``embeddings.safetensors``. Its
``grls.json`` may name a first retriever: ``"retriever": "../bm25-folder"`` (or ``"bm25"``), and the number of
passages that it proposes, ``"passages": 100``. A query has no more hits than that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Self, cast

import numpy as np
from sentence_transformers import MultiVectorEncoder

from grls.cluster.places import alone_at_shards, seen_elsewhere
from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.counts import counted
from grls.io.parts import PartTimer
from grls.models.base import Floats
from grls.models.biencoder import Matrix
from grls.models.sentence_model import library_type
from grls.models.text_encoder import passage_text
from grls.retrieve.base import AllScores, Description, Retriever
from grls.retrieve.build import Building
from grls.retrieve.encoded.encode import encoded_passages
from grls.retrieve.encoded.ranking import RanksByScores
from grls.retrieve.encoded.retriever import refuse_generative
from grls.retrieve.encoded.shards import PART, Encoding, shard_size
from grls.retrieve.hops.finders import found_after
from grls.retrieve.multi_vector.encode import LateTexts
from grls.retrieve.multi_vector.search import MaxSimSearch
from grls.retrieve.multi_vector.shards import encode_vectors, join_vectors
from grls.retrieve.multi_vector.vectors import (
    TokenVectors,
    bounds_of,
    check_finite,
    check_form,
    read_vectors,
    write_vectors,
)
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import BM25, Opening, open_member, with_languages
from grls.retrieve.spec import MANIFEST, Member, relative

NO_VECTOR = -1e9
"""Score of a passage without a vector (the model leaves all of its tokens out), which is no hit."""


class MultiVectorRetriever(RanksByScores):
    """Retrieves by MaxSim.

    Args:
        encoder: Encodes the queries.
        corpus: The N passages.
        tokens: The vectors of the passages.
        batch_size: Texts encoded, and queries searched for, together.
        truncate_queries: Cut queries longer than the limit; false refuses them.
        progress: Show progress bars.
        checked: The vectors are known to be finite, so they are not checked again.

    Raises:
        DataError: The corpus cannot be used, or a vector is not finite.
        MismatchError: The vectors are not those of this corpus and model.
    """

    kind = "multi-vector"
    folders = ("retriever",)
    called = "a multi-vector retriever"
    file = "embeddings.safetensors"
    built_by_workers = True
    fields = ("retriever", "passages")
    least_score = NO_VECTOR

    encoder: LateTexts

    def __init__(
        self,
        encoder: LateTexts,
        corpus: Corpus,
        tokens: TokenVectors,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
        checked: bool = False,
    ):
        super().__init__(encoder, corpus, batch_size, truncate_queries, progress)
        check_form(tokens, len(corpus), encoder.dimension)
        if not checked:
            check_finite(tokens)
        self.tokens = tokens
        self._search = MaxSimSearch(tokens, encoder.similarity == "meanmaxsim")
        self._first: tuple[Retriever, int] | None = None
        self._named: Member | None = None

    @property
    def temperature(self) -> float:
        """The temperature of training: 1 for sums over a query's tokens, 1 / 20 for means."""
        return 0.05 if self.encoder.similarity == "meanmaxsim" else 1.0

    @classmethod
    def assemble(
        cls,
        encoder: LateTexts,
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
        rows = _vectors(encoder, corpus, batch_size, progress)
        tokens = TokenVectors(np.concatenate(rows), bounds_of([len(one) for one in rows]))
        made = cls(encoder, corpus, tokens, batch_size, progress=progress, checked=True, **options)
        made._encoded_by = encoder.fingerprint()
        return made

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of a ``MultiVectorEncoder``."""
        return Path(model).is_dir() and library_type(model) == MultiVectorEncoder.__name__

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`. A run that was killed goes on."""
        refuse_generative(how, "a multi-vector encoder")
        how.refuse_unused("a multi-vector encoder", ("similarity",))
        start = perf_counter()
        place, passages = seen_elsewhere(model), Corpus.read(corpus)
        load = partial(LateTexts.load, place, how.device, how.limits.input)
        encoding = Encoding("vectors", load, encode_vectors, place, how.batch_size, how.output, how.workers)
        encoder = load()
        with alone_at_shards(how.output):
            encoded = encoding.shards(encoder, passages, len(passages), shard_size(how.workers))
            made = cls(encoder, passages, join_vectors(encoded, encoder.dimension), checked=True)
            made._encoded_by = encoder.fingerprint()
            made.save_pretrained(how.output)
            encoded.plan.remove()
        count, dimension = made.tokens.vectors.shape
        return (
            f"{how.output}: {counted(len(passages), 'passage')}, {count / len(passages):.1f} vectors of "
            f"{dimension} dimensions each, {4 * count * dimension / 2**20:.1f} MiB, "
            f"{perf_counter() - start:.1f} s"
        )

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder, and the first retriever that it may name; see :func:`load_retriever`.

        Raises:
            DataError: The first retriever is missing, or ``passages`` is not a count.
            MismatchError: The first retriever is over another corpus.
        """
        opened = super().open(folder, spec, how)
        file, count = folder / MANIFEST, spec.get("passages", 100)
        if "retriever" not in spec:
            if "passages" in spec:
                raise DataError("passages: how many a first retriever proposes; name it as retriever.", file)
            return opened
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise DataError(f"passages: expected a count of at least 1, got {count!r}.", file)
        over = replace(how, corpus=opened.corpus)  # an embedded BM25
        first = open_member(spec["retriever"], folder, "retriever", over)
        member = spec["retriever"]
        if isinstance(member, str) and (member != BM25 or (folder / member).is_dir()):
            member = str(folder / member)
        return opened.behind(first, count, member)

    def behind(self, first: Retriever, passages: int = 100, named: Member | None = None) -> Self:
        """Rank only the passages that another retriever proposes; returns this retriever.

        Args:
            first: The first retriever.
            passages: Number of passages that it proposes.
            named: Its folder or specification, for :meth:`save_pretrained`.

        Raises:
            MismatchError: The first retriever is over another corpus.
        """
        check_counts(passages=passages)
        if first.corpus.fingerprint != self.corpus.fingerprint:
            raise MismatchError(
                f"the first retriever is over {first.corpus.source}, this one over {self.corpus.source}, "
                "another corpus: index them over the same one."
            )
        self._first, self._named = (first, passages), named
        return self

    @classmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> LateTexts:
        return LateTexts.load(str(folder), "cpu", manifest["max_tokens"])

    @classmethod
    def _made(cls, encoder: LateTexts, corpus: Corpus, file: Path, options: dict[str, Any]) -> Self:
        return cls(encoder, corpus, read_vectors(file), **options)

    def _again(self, numbers: list[int]) -> tuple[list[Matrix], list[Matrix]]:
        texts = [passage_text(passage) for passage in self.corpus.passages(numbers)]
        vectors, bounds = self.tokens
        stored = [vectors[bounds[number] : bounds[number + 1]] for number in numbers]
        return stored, self.encoder.encode(texts, "passage", self.batch_size)

    def _write(self, file: Path) -> None:
        write_vectors(self.tokens, file)

    def _write_changed(self, kept: Numbers, added: Corpus | None, file: Path) -> None:
        lengths = np.diff(self.tokens.bounds)
        new = [] if added is None else _vectors(self.encoder, added, self.batch_size, progress=True)
        stays = np.zeros(len(lengths), dtype=bool)
        stays[kept] = True
        old = self.tokens.vectors[np.repeat(stays, lengths)]
        bounds = bounds_of([*lengths[kept].tolist(), *(len(one) for one in new)])
        write_vectors(TokenVectors(np.concatenate([old, *new]), bounds), file)

    def _recorded(self, folder: Path) -> dict[str, Any]:
        if self._first is None:
            return {}
        member = self._named
        if member is None:
            raise ConfigError("the first retriever has no name to save: give its folder to behind().")
        if isinstance(member, str) and member != BM25:
            member = relative(member, folder)
        spec = {"kind": self.kind, "retriever": member}
        return {
            "retriever": with_languages(spec, folder, self.corpus)["retriever"], "passages": self._first[1],
        }  # fmt: skip

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        own: dict[str, Any] = {
            "max_input_tokens": self.encoder.max_tokens, "truncate_queries": self.truncate_queries,
        }  # fmt: skip
        if self._first is None:
            return Description(self.kind, self.encoder.similarity, own, stages=self.stages)
        first, passages = self._first
        of_first = first.describe()
        own |= {"first": of_first.name, "passages": passages}
        label = f"{self.kind} over {of_first.name}"
        return Description(self.kind, self.encoder.similarity, own, label, self.stages)

    def fingerprint(self) -> str:
        """SHA-256 of model and corpus, and of the first retriever."""
        alone = super().fingerprint()
        if self._first is None:
            return alone
        first, passages = self._first
        return hashlib.sha256(json.dumps([alone, first.fingerprint(), passages]).encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[Matrix]:
        """``[L, d]`` vectors of the text of each query."""
        with PartTimer("encoder"):
            return self.encoder.encode(texts, "query", self.batch_size)

    def among(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], allow: Allow
    ) -> list[tuple[list[int], Numbers | None]]:
        """The allowed passages of each query: those that the first retriever proposes, if there is one."""
        if self._first is None:
            return super().among(queries, evidence, allow)
        first, passages = self._first
        if any(evidence):
            proposed = [step.hits for step in found_after(first, queries, evidence, passages, allow)]
        else:
            proposed = first.retrieve(queries, passages, allow)
        numbers = [self.corpus.numbers([hit.id for hit in hits]) for hits in proposed]
        sets = [np.array(sorted(cast(list[int], ids)), dtype=np.int64) for ids in numbers]
        return [([query], allowed) for query, allowed in enumerate(sets)]

    def best(
        self, asked: list[Matrix], queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """See :class:`~grls.retrieve.encoded.ranking.RanksByScores`."""
        numbers = self._search.known
        if among is not None:
            numbers = np.intersect1d(among, numbers, assume_unique=True)
        return self._search.best([asked[query] for query in queries], k, numbers)

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """MaxSim of all passages, in single precision; see :class:`~grls.retrieve.base.ScoresAll`."""
        asked = self.encode(self.texts(queries, evidence))
        known = self._search.known

        def scores(numbers: Numbers) -> Floats:
            table = np.full((len(numbers), len(self.corpus)), NO_VECTOR)
            table[:, known] = self._search.single([asked[query] for query in numbers.tolist()], known)[0]
            return table

        return scores


def _vectors(encoder: LateTexts, corpus: Corpus, batch_size: int, progress: bool) -> list[Matrix]:
    """The vectors of each passage of a corpus."""

    def encode(texts: Sequence[str]) -> list[Matrix]:
        return encoder.encode(texts, "passage", batch_size)

    shards = encoded_passages(encoder, corpus, encode, PART, progress)
    return [one for shard in shards for one in shard]
