"""A dense retriever: bi-encoder, embeddings and corpus together, in memory and on disk.

Legend: N passages, d embedding dimension.

Passages are ranked by their exact inner product with the query, which is the cosine where the model compares
by it (:mod:`grls.retrieve.dense.search`). DONE is embedded like a passage, as row N: it never is a hit, but
multi-step retrieval is told its score.

The folder holds ``model/``, ``embeddings.npy`` (memory-mapped), ``corpus.jsonl`` and ``grls.json``, which
ties the three together by fingerprints.
"""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Numbers
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.array_files import asked_to_verify
from grls.io.files import atomic_folder, sha256, write_json
from grls.models.base import Floats
from grls.models.biencoder import BiEncoder, Matrix
from grls.models.load.settings import refuse_other_settings, settings_in
from grls.retrieve.base import AllScores, Description, HopHits
from grls.retrieve.dense.encode import EMBEDDINGS, encode_corpus, encode_to_disk, refuse_unusable_corpus
from grls.retrieve.dense.search import BLOCK, Nearest, inner_products, top_k
from grls.retrieve.hub import upload
from grls.retrieve.queries import Reachable, check_counts, queries_of, reachable
from grls.retrieve.registry import Opening
from grls.retrieve.spec import MANIFEST, read_spec

log = logging.getLogger(__name__)

_TOLD = 10
"""Queries that are cut and named in a warning; training may ask of a great many."""

FORMAT = 1
KIND = "dense"

_REBUILD = "make it again with `grls index`."


class DenseRetriever:
    """Retrieves by inner product of embeddings.

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
    least_score = -math.inf
    done_biases = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)

    def __init__(
        self,
        biencoder: BiEncoder,
        corpus: Corpus,
        embeddings: Matrix,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
        checked: bool = False,
    ):
        check_counts(batch_size=batch_size)
        refuse_unusable_corpus(corpus)
        _check_shape(embeddings, len(corpus), biencoder.dimension)
        if not checked:
            _check_finite(embeddings)
        self.biencoder = biencoder
        self.corpus = corpus
        self.embeddings = embeddings
        self.batch_size = batch_size
        self.truncate_queries = truncate_queries
        self.progress = progress
        self._cut = 0
        self._work: Path | None = None
        self._embedded_by: str | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The training stages that the model has gone through."""
        return self.biencoder.stages

    @property
    def learned_done(self) -> bool | None:
        """Whether the model has learned when DONE follows; None: not known."""
        return self.biencoder.learned_done

    @classmethod
    def assemble(
        cls,
        biencoder: BiEncoder,
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
                (:func:`~grls.retrieve.dense.encode.work_folder`); :meth:`save_pretrained` removes it. None:
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
        made._embedded_by = biencoder.fingerprint()
        return made

    def refresh(self, biencoder: BiEncoder, work: str | Path | None = None) -> Self:
        """The retriever over the same corpus after the model has changed: every passage is embedded anew."""
        options = {name: getattr(self, name) for name in ("batch_size", "truncate_queries", "progress")}
        return type(self).assemble(biencoder, self.corpus, work, **options)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "float32",
        verify: bool = True,
        **options: Any,
    ) -> Self:
        """Open a retriever folder.

        Args:
            folder: What :meth:`save_pretrained` (or ``grls index``) wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
            precision: ``float32`` or ``bfloat16``, in which queries are embedded.
            verify: Compare model and embeddings with the manifest; otherwise embeddings need only be finite
                (either reads every byte once).
            options: Other arguments of the constructor.

        Raises:
            DataError: The folder is no dense retriever, or a file in it is damaged.
            MismatchError: Model, embeddings and corpus do not belong together.
        """
        path = Path(folder)
        manifest = read_dense_manifest(path)
        corpus = Corpus.read(path)
        if corpus.fingerprint != manifest["corpus"]:
            raise _mismatch(path, "corpus")
        refuse_other_settings(path / "model", manifest.get("settings"), path / MANIFEST)
        biencoder = BiEncoder.load(str(path / "model"), "auto", "cpu", manifest["max_tokens"])
        file = path / EMBEDDINGS
        if not file.is_file() or file.stat().st_size != manifest["embeddings"]["bytes"]:
            raise DataError(f"the embeddings are missing or truncated; {_REBUILD}", file)
        if verify and sha256(file) != manifest["embeddings"]["sha256"]:
            raise MismatchError(f"{file}: these are not the embeddings of this retriever; {_REBUILD}")
        if verify and biencoder.fingerprint() != manifest["model"]:
            raise _mismatch(path, "model")
        # What is as it was saved is finite: then it was checked.
        opened = cls(biencoder.to(device, precision), corpus, _open(file), checked=verify, **options)
        opened._embedded_by = manifest["model"]
        return opened

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`grls.retrieve.registry.load`.

        Of the options of search it heeds the batch size, ``truncate_queries`` and ``progress``.

        Raises:
            ConfigError: ``compile`` or ``rescore`` is set.
        """
        search = how.search
        if search is not None and search.compile:
            raise ConfigError(
                f"{folder} is a dense retriever, which has no step to compile: leave compile out."
            )
        if search is not None and search.rescore:
            raise ConfigError(f"{folder} is a dense retriever, which rescores nothing: leave rescore out.")
        options = (
            {}
            if search is None
            else {
                "batch_size": search.batch_size,
                "truncate_queries": search.truncate_queries,
                "progress": search.progress,
            }
        )
        verify = asked_to_verify(how.verify) is not False
        return cls.from_pretrained(folder, how.device, how.precision, verify, **options)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

        Raises:
            MismatchError: The model has changed (trained on, or in another precision) since it embedded the
                passages.
            ConfigError: The folder exists and holds something else.
            WriteError: The disk is full or the place cannot be written.
        """
        model = self.biencoder.fingerprint()
        if self._embedded_by not in (None, model):
            raise MismatchError(
                "the model is not as it was when it embedded the passages: refresh the retriever, or open it "
                "in float32, before it is saved."
            )
        with atomic_folder(folder, MANIFEST) as new:
            (new / "model").mkdir()
            self.biencoder.write(new / "model")
            _write_rows(self.embeddings, new / EMBEDDINGS)
            self.corpus.write(corpus_file(new))
            size = (new / EMBEDDINGS).stat().st_size
            manifest = {
                "format": FORMAT,
                "kind": KIND,
                "model": model,
                "corpus": self.corpus.fingerprint,
                "embeddings": {"bytes": size, "sha256": sha256(new / EMBEDDINGS)},
                "dimension": self.biencoder.dimension,
                "max_tokens": self.biencoder.max_tokens,
                "stages": list(self.stages),
                "settings": settings_in(new / "model"),
            }
            write_json(new / MANIFEST, manifest)
        self._leave_work(Path(folder))

    def _leave_work(self, folder: Path) -> None:
        """Read from the saved embeddings from now on, and remove the work folder."""
        if self._work is not None:
            self.embeddings = _open(folder / EMBEDDINGS)
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private)

    def fingerprint(self) -> str:
        """SHA-256 of what passages are found by: the model (its limits, too) and the corpus."""
        model = self._embedded_by or self.biencoder.fingerprint()
        return hashlib.sha256(f"{model} {self.corpus.fingerprint}".encode()).hexdigest()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
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
        done = [float(inner_products(vector, self.embeddings[-1:])[0]) for vector in vectors]
        return [HopHits(self._hits(near), score) for near, score in zip(found, done, strict=True)]

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        own = {"max_input_tokens": self.biencoder.max_tokens, "truncate_queries": self.truncate_queries}
        return Description("biencoder", "inner_product", own, stages=self.stages)

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
        """Inner products with all embeddings; see :class:`~grls.retrieve.base.ScoresAll`."""
        vectors = self.embed(queries, evidence or [()] * len(queries))
        rows = self.embeddings if self.scores_done else self.embeddings[:-1]

        def scores(numbers: Numbers) -> Floats:
            return np.asarray(vectors[numbers] @ rows.T, dtype=np.float64)

        return scores

    def embed(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> Matrix:
        """The embeddings of queries with the passages found so far, ``[Q, d]``.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        self._check_queries(queries)
        texts = [self.biencoder.query_text(q.text, e) for q, e in zip(queries, evidence, strict=True)]
        return self.biencoder.encode_queries(texts, self.batch_size, self.progress or None)

    def _nearest(self, vectors: Matrix, within: Reachable, k: int) -> list[Nearest]:
        """The k nearest passages that each query may find; queries with one filter are searched together."""
        found = [Nearest(np.empty(0, np.int64), np.empty(0)) for _ in vectors]
        for place in dict.fromkeys(within.places):
            some = [query for query, own in enumerate(within.places) if own == place]
            among = None if place is None else within.sets[place]
            nearest = top_k(vectors[some], self.embeddings[:-1], k, among=among)
            for query, near in zip(some, nearest, strict=True):
                found[query] = near
        return found

    def _hits(self, nearest: Nearest) -> list[Hit]:
        ids = self.corpus.ids(nearest.numbers.tolist())
        return [Hit(*pair) for pair in zip(ids, nearest.scores.tolist(), strict=True)]

    def _check_queries(self, queries: Sequence[Query]) -> None:
        limit = self.biencoder.max_tokens
        for query in queries:
            if not query.text.strip():
                raise DataError(f"query {query.id!r} is empty; give it a text or remove it.")
            length = self.biencoder.tokens(query.text)
            if length <= limit:
                continue
            what = f"query {query.id!r} has {length} tokens, the limit is {limit}: its end would be cut."
            if not self.truncate_queries:
                raise DataError(
                    f"{what} Shorten it, raise --max_input_tokens (of grls index), or accept the cut with "
                    "--truncate_queries true."
                )
            self._cut += 1
            if self._cut <= _TOLD:
                log.warning(what)
            elif self._cut == _TOLD + 1:
                log.warning("more queries are longer than %d tokens and cut; they are not named.", limit)


def read_dense_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dense retriever.

    Raises:
        DataError: There is none, or it is not one of ours.
    """
    file = folder / MANIFEST
    manifest = read_spec(folder)
    if isinstance(manifest, dict) and manifest.get("kind", KIND) != KIND:
        raise DataError(
            f"this is a retriever of the kind {manifest['kind']!r}, and a dense one is wanted here: give the "
            "folder of one, or make one with `grls index --kind dense`.",
            file,
        )
    if not isinstance(manifest, dict) or (manifest.get("kind"), manifest.get("format")) != (KIND, FORMAT):
        raise DataError(f"expected a dense retriever of format {FORMAT}; {_REBUILD}", file)
    kinds = {"model": str, "corpus": str, "embeddings": dict, "max_tokens": int}
    wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    if wrong or not {"bytes", "sha256"} <= set(manifest["embeddings"]):
        raise DataError(f"the key {(wrong or ['embeddings'])[0]!r} is missing or malformed; {_REBUILD}", file)
    return manifest


def _mismatch(folder: Path, what: str) -> MismatchError:
    return MismatchError(f"{folder}: the embeddings were made with another {what} than this one; {_REBUILD}")


def _check_shape(embeddings: Matrix, passages: int, dimension: int) -> None:
    expected = (passages + 1, dimension)
    if embeddings.shape != expected:
        raise MismatchError(
            f"expected embeddings of {passages:,} passages and DONE, {expected}, got {embeddings.shape}: "
            f"they belong to another corpus or model; {_REBUILD}"
        )


def _check_finite(embeddings: Matrix) -> None:
    for start in range(0, len(embeddings), BLOCK):
        wrong = np.flatnonzero(~np.isfinite(embeddings[start : start + BLOCK]).all(axis=1))
        if len(wrong):
            raise DataError(f"the embedding in row {start + int(wrong[0])} is not finite; {_REBUILD}")


def _open(file: Path) -> Matrix:
    """Embeddings, memory-mapped."""
    try:
        # A plain span: indexing through the memmap class is several times slower.
        mapped: Matrix = np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    except ValueError as error:
        raise DataError(f"the embeddings cannot be read ({error}); {_REBUILD}", file) from None
    return mapped


def _write_rows(rows: Matrix, file: Path) -> None:
    """Write an array as ``.npy``, a block at a time, so that a mapped one is never whole in memory."""
    with file.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": rows.shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(rows), BLOCK):
            stream.write(np.ascontiguousarray(rows[start : start + BLOCK], dtype="<f4").data)
