"""What retrievers share whose model encodes texts: dense, sparse, multi-vector.

Legend: N passages.

A kind is one file with a subclass of :class:`EncodedRetriever`, which says how its encoded passages (its
rows) are written and read, and how queries are compared with them. The corpus is encoded in shards, by this
process or by workers. Each finished shard is on disk, so memory does not grow with the corpus, and a killed
run encodes the missing shards alone. The folder holds ``model/``, the arrays of the rows, ``corpus.jsonl``
and ``grls.json``, which ties the three together by checksums and fingerprints.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from grls.cluster.options import USUAL_WORKERS, Workers
from grls.cluster.plan import Shard, Work, refuse_other_reading, seen_elsewhere
from grls.cluster.shards import done_shards
from grls.data.codec import CUT_QUERIES
from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Numbers
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index.build import refuse_empty
from grls.index.external_sort import GrowingArray
from grls.index.files import map_array
from grls.index.rows import Array
from grls.io.arguments import short_repr
from grls.io.files import atomic_folder, temporary
from grls.io.progress import Progress, counted
from grls.io.seal import chosen_verify, seal
from grls.io.timing import PartTimer, report_step
from grls.models.base import Floats
from grls.models.sentence_model import COSINE, DOT, library_type
from grls.models.text_encoder import TextEncoder, passage_text
from grls.retrieve.base import AllScores, Description, Evidence, HopHits
from grls.retrieve.build import Building
from grls.retrieve.generative.options import USUAL_SEARCH
from grls.retrieve.queries import queries_of, reachable
from grls.retrieve.registry import Opening, folder_key
from grls.retrieve.spec import (
    MANIFEST,
    OPTIONS,
    read_spec,
    refuse_own_members,
)
from grls.retrieve.update import Changes

log = logging.getLogger(__name__)

FORMAT = 2

REBUILD = "make it again with `grls index`."
"""The remedy for a folder that cannot be used."""

Parts = Callable[[], Iterable[Any]]
"""Rows in parts, in the order of the passages. It may be called several times."""

_FIELDS = ("format", "kind", "model", "dimension", "max_tokens", "stages")
"""The fields of ``grls.json`` that every kind has."""

_CUT = Option("limits.input", python="max_tokens")
"""The option that a cut passage asks for."""

_NAMED = 10
"""Number of cut queries that warnings name; a training may have very many."""

_MOST = 1e15
"""The largest absolute number of a row: products of larger ones may be infinite in float32."""

_BLOCK = 1 << 16
"""Elements of the first axis of an array, or passages, that are read together."""


class EncodedRetriever(ABC):
    """A retriever whose model encodes queries and passages.

    A kind sets the class attributes that have no value here, and defines the abstract methods. Its encoder is
    a :class:`~grls.models.text_encoder.TextEncoder`. The smallest kind is :mod:`grls.retrieve.sparse`.

    Args:
        encoder: The model, which encodes the queries and has encoded the passages.
        corpus: The N passages.
        rows: The encoded passages, in the form of the kind.
        batch_size: Texts encoded together.
        truncate_queries: Cut queries longer than the limit; false refuses them.
        progress: Show progress bars.

    Raises:
        ConfigError: The batch size is not positive.
        DataError: The corpus cannot be used, or a number of the rows is not finite.
        MismatchError: The rows are not those of this corpus and model.
    """

    # ---- What a kind defines, with the abstract methods below

    kind: ClassVar[str]
    """Its name in :mod:`grls.retrieve.registry`."""
    system: ClassVar[str]
    """Its name in reports."""
    called: ClassVar[str]
    """Its name in error messages: "a dense retriever"."""
    encodes: ClassVar[type[TextEncoder]]
    """The class of its encoder."""
    library: ClassVar[str]
    """The class of sentence-transformers whose folders are models of this kind."""
    file: ClassVar[str]
    """The file of the folder that holds the rows, or the folder of its files."""
    least_score: float
    """A passage is a hit if its score is above this; :meth:`best` leaves out all others."""

    # ---- What a kind may change

    fields: ClassVar[tuple[str, ...]] = ()
    """Fields of ``grls.json`` that only this kind has."""
    part: ClassVar[int] = 1024
    """Passages that are encoded together, in batches of like lengths. Shards of a multiple of it have the
    batches of one process."""
    last_texts: ClassVar[tuple[str, ...]] = ()
    """Texts whose rows follow those of the passages."""
    compares_all: ClassVar[bool] = False
    """Whether all queries are compared together; false: a batch at a time."""
    heeds: ClassVar[tuple[str, ...]] = ("batch_size", "truncate_queries")
    """The options of search that this kind can use."""
    embeddable: ClassVar[bool] = False
    """Whether a composite may embed its specification: its data are in its folder."""
    built_with: ClassVar[tuple[str, ...]] = ("limits.input", "workers")

    def __init__(
        self,
        encoder: Any,
        corpus: Corpus,
        rows: Any,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
    ):
        refuse_empty(corpus)
        self.check_rows(rows, len(corpus) + len(self.last_texts), encoder.dimension)
        self.encoder = encoder
        self.corpus = corpus
        self.rows = rows
        self.batch_size = batch_size
        self.truncate_queries = truncate_queries
        self.progress = progress
        self._cut = 0
        self._encoded_by: str | None = None

    # ---- Rows and their comparison, which a kind defines

    @staticmethod
    @abstractmethod
    def check_rows(rows: Any, count: int, dimension: int) -> None:
        """Check the rows of so many texts.

        Raises:
            DataError: A number is not finite, or too large.
            MismatchError: Their shape does not fit.
        """

    @staticmethod
    def rows_of(encoded: Any) -> Any:
        """The output of the encoder as rows."""
        return encoded

    @staticmethod
    @abstractmethod
    def concatenated(parts: list[Any]) -> Any:
        """Rows in memory, one part behind the other."""

    @staticmethod
    @abstractmethod
    def write(parts: Parts, file: Path) -> None:
        """Write rows to a file; those of the parts are never together in memory."""

    @staticmethod
    @abstractmethod
    def read(file: Path, passages: int, dimension: int) -> Any:
        """The rows of a file, memory-mapped.

        Raises:
            DataError: The file is damaged.
        """

    @abstractmethod
    def taken(self, numbers: Numbers) -> Any:
        """The rows of some passages."""

    @staticmethod
    def each(rows: Any) -> Iterable[Any]:
        """Rows as an array for each passage."""
        each: Iterable[Any] = rows
        return each

    @staticmethod
    @abstractmethod
    def size(rows: Any, passages: int) -> str:
        """The size of the rows of so many passages, for the line of a command."""

    @abstractmethod
    def best(
        self, encoded: Any, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """The k best passages of each query, equal scores in the order of the corpus; their scores.

        Args:
            encoded: The encoded texts of all queries, from :meth:`encode`.
            queries: The numbers of the queries to compare.
            k: Largest number of passages.
            among: Numbers of the allowed passages, ascending; None: all.
        """

    @abstractmethod
    def score(self, encoded: Any, queries: Numbers) -> Floats:
        """Scores ``[n, N]`` of n of the encoded queries, by number."""

    @classmethod
    def loading(cls, building: Building) -> dict[str, Any]:
        """Further arguments of the ``load`` of the encoder, from the options of a build."""
        return {}

    def _recorded(self, folder: Path) -> dict[str, Any]:
        """Further fields of the ``grls.json`` of a folder."""
        return {}

    # ---- Encoding

    @classmethod
    def assemble(
        cls, encoder: Any, corpus: Corpus, batch_size: int = 32, progress: bool = False, **options: Any
    ) -> Self:
        """Encode a corpus in memory; the arguments are those of the constructor."""
        refuse_empty(corpus)
        parts, cut = [], 0
        with Progress(len(corpus), "embed", "passages", shown=progress) as bar, encoder.telling(bar.update):
            for first in range(0, len(corpus), cls.part):
                numbers = range(first, min(first + cls.part, len(corpus)))
                rows, cut_part = cls._encoded(encoder, corpus, numbers, batch_size)
                parts.append(rows)
                cut += cut_part
        if cut:
            log.warning(encoder.cut_notice(cut, len(corpus), str(_CUT)))
        rows = cls.concatenated([*parts, *cls._last_rows(encoder)])
        retriever = cls(encoder, corpus, rows, batch_size, progress=progress, **options)
        retriever._encoded_by = encoder.fingerprint()
        return retriever

    @classmethod
    def _encoded(cls, encoder: Any, corpus: Corpus, numbers: range, batch_size: int) -> tuple[Any, int]:
        # with the number of cut passages
        texts = [passage_text(passage) for passage in corpus.passages(numbers)]
        rows = cls.rows_of(encoder.encode(texts, "passage", batch_size))
        cls.check_rows(rows, len(texts), encoder.dimension)
        return rows, encoder.count_cut(texts)

    @classmethod
    def _last_rows(cls, encoder: Any) -> list[Any]:
        texts = list(cls.last_texts)
        return [cls.rows_of(encoder.encode(texts, "passage", len(texts)))] if texts else []

    @classmethod
    def encode_shard(
        cls, encoder: Any, corpus: Corpus, batch_size: int, shard: Shard, folder: Path
    ) -> dict[str, Any]:
        """Encode the passages of a shard into files of a folder, a part each."""
        cut = 0
        for numbers, file in cls._files(shard, folder):
            rows, cut_part = cls._encoded(encoder, corpus, numbers, batch_size)
            cls.write(partial(iter, [rows]), file)
            cut += cut_part
        return {"cut": cut}

    @classmethod
    def _files(cls, shard: Shard, folder: Path) -> Iterator[tuple[range, Path]]:
        for first in range(shard.first, shard.end, cls.part):
            yield range(first, min(first + cls.part, shard.end)), folder / f"{first}-{cls.file}"

    @classmethod
    def _read_shard(cls, shard: Shard, folder: Path, dimension: int) -> Iterator[Any]:
        for numbers, file in cls._files(shard, folder):
            yield cls.read(file, len(numbers), dimension)

    @classmethod
    def recognises(cls, model: str) -> bool:
        return Path(model).is_dir() and library_type(model) == cls.library

    @classmethod
    def build(cls, model: str, corpus: str, building: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`. A run that was killed goes on."""
        start, source = perf_counter(), seen_elsewhere(model)
        options = {"device": building.device, "max_tokens": building.limits.input, **cls.loading(building)}
        load = partial(cls.encodes.load, source, **options)
        encoder, passages = load(), Corpus.read(corpus)
        refuse_empty(passages)
        prints = {"model": encoder.fingerprint(), "corpus": passages.fingerprint}

        def here() -> Work:
            return partial(cls.encode_shard, encoder, passages, building.batch_size)

        path = str(corpus_file(passages.source).absolute())
        there = partial(open_encoding, cls, load, source, path, building.batch_size, prints)
        workers = building.workers or Workers(None, USUAL_WORKERS)
        make = here if workers.address is None else there
        # A kill costs a shard; texts of like length are encoded together, so smaller shards take longer.
        # Each shard of workers has a request, so theirs are larger.
        alone = min(cls.part, max(512, len(passages) // 64))
        count = workers.options.shard or (alone if building.workers is None else 16 * cls.part)
        drops = workers.address is None  # a run by workers is too dear to be dropped for a wrong option
        settings = {**prints, "what": cls.kind}
        with done_shards(
            building.output, settings, len(passages), count, make, workers, "embed", "passages", drops,
            encoder.telling,
        ) as done:  # fmt: skip
            if cut := sum(finished.result["cut"] for finished in done):
                log.warning(encoder.cut_notice(cut, len(passages), str(_CUT)))

            def parts() -> Iterator[Any]:
                for finished in done:
                    yield from cls._read_shard(finished.shard, finished.folder, encoder.dimension)
                yield from cls._last_rows(encoder)

            cls._put(building.output, encoder, passages, prints["model"], parts)
        rows = cls.read(Path(building.output) / cls.file, len(passages), encoder.dimension)
        size = cls.size(rows, len(passages))
        seconds = perf_counter() - start
        return f"{building.output}: {counted(len(passages), 'passage')}{size}, {seconds:.1f} s"

    # ---- Folders

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        """Open a folder; see :func:`load_retriever`.

        Of the options of search, the batch size and ``truncate_queries`` have an effect.
        """
        options, file = cls._search_options(opening), folder / MANIFEST
        if spec.get("format") != FORMAT:
            raise DataError(f"expected {cls.called} of format {FORMAT}; {REBUILD}", file)
        for key, kind in (("model", str), ("max_tokens", int)):
            if not isinstance(spec.get(key), kind):
                raise DataError(f"the key {key!r} is missing or malformed; {REBUILD}", file)
        known = (*_FIELDS, *cls.fields, *OPTIONS)
        if unknown := sorted(set(spec) - set(known)):
            fields = ", ".join(known)
            raise DataError(f"unknown field {unknown[0]!r} of kind {cls.kind!r}; known are {fields}.", file)
        corpus = Corpus.read(folder)
        encoder = cls.encodes.load(str(folder / "model"), device="cpu", max_tokens=spec["max_tokens"])
        dimension = spec.get("dimension", encoder.dimension)
        if dimension != encoder.dimension:
            raise DataError(
                f"dimension is {dimension!r}, and the model here encodes in {encoder.dimension}; {REBUILD}",
                file,
            )
        if chosen_verify(opening.verify) is not False and encoder.fingerprint() != spec["model"]:
            raise MismatchError(
                f"{folder}: the embeddings were made with another model than this one; {REBUILD}"
            )
        encoder.to(opening.device, opening.precision)
        rows = folder / cls.file
        try:
            opened = cls(encoder, corpus, cls.read(rows, len(corpus), encoder.dimension), **options)
        except (DataError, MismatchError) as error:  # although the checksum fits
            raise (error if str(rows) in str(error) else type(error)(f"{rows}: {error.text}")) from None
        opened._encoded_by = spec["model"]
        return opened

    shared_by = staticmethod(folder_key)

    def reopened(self, folder: Path, opening: Opening) -> Self:
        retriever, options = copy(self), self._search_options(opening)
        retriever.batch_size = options.get("batch_size", USUAL_SEARCH.batch_size)
        retriever.truncate_queries = options.get("truncate_queries", USUAL_SEARCH.truncate_queries)
        retriever._cut = 0
        return retriever

    @classmethod
    def _search_options(cls, opening: Opening) -> dict[str, Any]:
        """The options of search that have an effect; ``compile`` and ``rescore`` are refused."""
        search = opening.searching
        if search is not None and search.compile:
            raise ConfigError(f"{cls.called} has no step to compile: leave compile out.")
        if search is not None and search.rescore:
            raise ConfigError(f"{cls.called} rescores nothing: leave rescore out.")
        return {} if search is None else {name: getattr(search, name) for name in cls.heeds}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced."""
        model = self.encoder.fingerprint()
        if self._encoded_by not in (None, model):
            raise MismatchError(
                "the model has changed since it embedded the passages: assemble the retriever again, or open "
                "it in float32, before saving it."
            )
        fields = self._recorded(Path(folder))
        refuse_own_members(folder, fields)
        self._put(folder, self.encoder, self.corpus, model, lambda: [self.rows], fields)

    @classmethod
    def _put(
        cls,
        folder: str | Path,
        encoder: Any,
        corpus: Corpus,
        model: str,
        parts: Parts,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a folder, atomically; ``model`` is the fingerprint of the model that encoded the passages."""
        with atomic_folder(folder, MANIFEST) as new:
            (new / "model").mkdir()
            encoder.write(new / "model")
            cls.write(parts, new / cls.file)
            corpus.write(corpus_file(new))
            manifest = {
                "format": FORMAT,
                "kind": cls.kind,
                "model": model,
                "dimension": encoder.dimension,
                "max_tokens": encoder.max_tokens,
                "stages": list(encoder.stages),
                **(fields or {}),
            }
            seal(new / MANIFEST, manifest)

    @classmethod
    def update(cls, folder: Path, output: Path, changes: Changes) -> int:
        """Write a changed folder; only added passages are encoded. See :mod:`grls.retrieve.update`."""
        alone = {name: value for name, value in read_spec(folder).items() if name not in cls.fields}
        opened = cls.open(folder, alone, Opening(changes.device))
        corpus, numbers = changes.over(opened.corpus)
        encoder, before = opened.encoder, len(opened.corpus)
        with temporary(output) as scratch:
            added = Shard(0, 0, 0 if changes.add is None else len(changes.add))
            if changes.add is not None:
                with Progress(added.end, "embed", "passages") as bar, encoder.telling(bar.update):
                    cut = cls.encode_shard(encoder, changes.add, changes.batch_size, added, scratch)["cut"]
                if cut:
                    log.warning(encoder.cut_notice(cut, added.end, str(_CUT)))

            def parts() -> Iterator[Any]:
                for start in range(0, len(numbers), _BLOCK):
                    yield opened.taken(numbers[start : start + _BLOCK])
                yield from cls._read_shard(added, scratch, encoder.dimension)
                if cls.last_texts:
                    yield opened.taken(np.arange(before, before + len(cls.last_texts)))

            cls._put(output, encoder, corpus, str(opened._encoded_by), parts)
        return len(corpus)

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        file, last = folder / self.file, len(self.corpus) - 1
        numbers = sorted({round(step * last / 7) for step in range(8)})

        def refuse_other_rows() -> None:
            """Refuse rows that differ from those of the model by more than 5 % of their length."""
            texts = [passage_text(passage) for passage in self.corpus.passages(numbers)]
            encoded = self.rows_of(self.encoder.encode(texts, "passage", self.batch_size))
            stored = self.each(self.taken(np.array(numbers)))
            for row, new in zip(stored, self.each(encoded), strict=True):
                same_form = row.shape == new.shape
                if not same_form or np.linalg.norm(row - new) > 0.05 * np.linalg.norm(new) + 1e-6:
                    raise MismatchError(f"{file}: the model encodes a passage of it differently; {REBUILD}")

        yield f"the model encodes {counted(len(numbers), 'passage')} as stored", file, refuse_other_rows

    # ---- Search

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(self.encoder.stages)

    @property
    def temperature(self) -> float:
        """The temperature of training: 1 / 20 for cosines and means, 1 for sums."""
        return 0.05 if self.encoder.similarity in (COSINE, "meanmaxsim") else 1.0

    @property
    def scores_done(self) -> bool:
        return False

    def describe(self) -> Description:
        options = {"max_input_tokens": self.encoder.max_tokens, "truncate_queries": self.truncate_queries}
        similarity = self.encoder.similarity
        mode = "inner_product" if similarity == DOT else similarity
        return Description(self.system, mode, options, stages=self.stages)

    def fingerprint(self) -> str:
        """SHA-256 of the model (with its limits) and the corpus."""
        model = self._encoded_by or self.encoder.fingerprint()
        return hashlib.sha256(f"{model} {self.corpus.fingerprint}".encode()).hexdigest()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query, best first; ``Hit.score`` is the similarity.

        Equal scores keep the order of the corpus. A passage is a hit if its score is above ``least_score``.
        """
        listed = queries_of(queries)
        return self._search_after(listed, [()] * len(listed), k, allow)[1]

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        return [HopHits(hits, None) for hits in self._search_after(queries, evidence, k, allow)[1]]

    def _search_after(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow
    ) -> tuple[Any, list[list[Hit]]]:
        """The encoded queries with their evidence, and the hits of each, best first."""
        texts = self.texts(queries, evidence)
        groups = self.groups(queries, evidence, allow)
        encoded = self.encode(texts)
        rankings: dict[int, list[Hit]] = {}
        with Progress(len(queries), self.kind, "queries", shown=self.progress or None) as bar:
            for numbers, among in groups:
                step = len(numbers) if self.compares_all else self.batch_size
                for first in range(0, len(numbers), step):
                    batch = numbers[first : first + step]
                    best = self.best(encoded, batch, k, among)
                    for query, (passages, scores) in zip(batch, best, strict=True):
                        ids = self.corpus.ids(passages.tolist())
                        rankings[query] = [Hit(*pair) for pair in zip(ids, scores.tolist(), strict=True)]
                    bar.update(len(batch))
        return encoded, [rankings[query] for query in range(len(queries))]

    def groups(
        self, queries: Sequence[Query], evidence: Evidence, allow: Allow
    ) -> list[tuple[list[int], Numbers | None]]:
        """Numbers of queries of equal filters, each with the numbers of their allowed passages; None: all."""
        groups: dict[int, tuple[list[int], Numbers | None]] = {}
        for query, allowed in enumerate(reachable(queries, allow, self.corpus)):
            groups.setdefault(id(allowed), ([], allowed))[0].append(query)
        return list(groups.values())

    def scores(self, queries: Sequence[Query], evidence: Evidence = ()) -> AllScores:
        return partial(self.score, self.encode(self.texts(queries, evidence)))

    def encode(self, texts: Sequence[str]) -> Any:
        with PartTimer("encoder"), self.encoder.telling(lambda _: report_step()):
            return self.encoder.encode(texts, "query", self.batch_size)

    def texts(self, queries: Sequence[Query], evidence: Evidence = ()) -> list[str]:
        """The texts to encode: each query with its evidence; a text that is too long loses the oldest."""
        limit = self.encoder.limit("query")
        for query in queries:
            length = self.encoder.tokens(query.text)
            if length <= limit:
                continue
            named = f"query {query.id!r} ({short_repr(query.text)})"
            fault = f"{named} has {length} tokens, the limit is {limit}: its end"
            if not self.truncate_queries:
                raise DataError(
                    f"{fault} would be cut. Shorten it, raise {_CUT} where the retriever is made, or accept "
                    f"the cut with {CUT_QUERIES}."
                )
            self._cut += 1
            if self._cut <= _NAMED:
                log.warning("%s is cut.", fault)
            elif self._cut == _NAMED + 1:
                log.warning("more queries are longer than %d tokens and cut; they are not named.", limit)
        texts = []
        for query, passages in zip(queries, evidence or [()] * len(queries), strict=True):
            texts.append(self.encoder.query_text(query.text, passages))
            report_step()
        return texts


def open_encoding(
    kind: type[EncodedRetriever],
    load: Callable[[], TextEncoder],
    model: str,
    corpus: str,
    batch_size: int,
    expected: dict[str, str],
) -> Work:
    """Open an encoder and ``corpus.jsonl`` on a worker, which must have the expected fingerprints."""
    encoder, passages = load(), Corpus.read(corpus)
    fingerprints = {"model": encoder.fingerprint(), "corpus": passages.fingerprint}
    refuse_other_reading(fingerprints, expected, {"model": (model, "model"), "corpus": (corpus, "corpus")})
    return partial(kind.encode_shard, encoder, passages, batch_size)


def unusable_row(array: Array) -> int | None:
    """The first row of an array with a number that is not finite, or above 1e15; None: all are usable.

    A block of rows is read at a time, so the array may be memory-mapped.
    """
    for start in range(0, len(array), _BLOCK):
        rows = array[start : start + _BLOCK]
        if rows.size and not (float(rows.max()) <= _MOST and float(rows.min()) >= -_MOST):
            # No number of half precision is above the limit, but infinite ones.
            usable = np.abs(rows).reshape(len(rows), -1) <= np.float64(_MOST)
            return start + int(np.flatnonzero(~usable.all(axis=1))[0])
    return None


def top(scores: Floats, numbers: Numbers, k: int) -> tuple[Numbers, Floats]:
    """The k best passages, equal scores by number, ascending.

    Args:
        scores: ``[n]``.
        numbers: ``[n]``, ascending.
        k: Largest number of passages.
    """
    if len(scores) > k:
        least = np.partition(scores, -k)[-k] if k else np.inf
        mask = scores >= least
        scores, numbers = scores[mask], numbers[mask]
    order = np.argsort(-scores, kind="stable")[:k]
    return numbers[order], scores[order]


# ---- Arrays of files that may be larger than memory


def bounds_of(lengths: Array | Sequence[int]) -> Numbers:
    """Bounds ``[n + 1]`` of n items of these lengths that lie one behind the other."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def array_to_fill(file: Path, kind: npt.DTypeLike, length: int) -> Array:
    """A new array of a ``.npy`` file, memory-mapped.

    All of it is on disk before it is filled: a full disk would end a process that fills a mapped file.
    """
    with GrowingArray(file, kind) as zeros:
        for start in range(0, length, _BLOCK):
            zeros.append(np.zeros(min(_BLOCK, length - start), kind))
    array: Array = np.lib.format.open_memmap(file, "r+").view(np.ndarray)
    return array


def read_array(file: Path, *kinds: npt.DTypeLike) -> Array:
    """The array of a ``.npy`` file, of one of these kinds of numbers; that of a larger file is mapped."""
    try:
        array = map_array(file)
        if kinds and array.dtype not in kinds:
            raise ValueError(f"it holds numbers of the kind {array.dtype}")
    except (OSError, ValueError) as error:
        raise DataError(f"the embeddings cannot be read ({error}); {REBUILD}", file) from None
    return array
