"""The base of retrievers whose model encodes texts: opened, saved, and the queries checked, in one way.

The form of the encoded passages, and how they are ranked, differ by kind:
:mod:`grls.retrieve.dense.retriever`, :mod:`grls.retrieve.sparse.retriever`,
:mod:`grls.retrieve.multi_vector.retriever`.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Numbers
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index.array_files import asked_to_verify
from grls.io.counts import counted
from grls.io.files import atomic_folder, scratch_folder
from grls.models.base import Floats
from grls.models.load.settings import refuse_other_settings
from grls.models.text_encoder import TextEncoder
from grls.retrieve.base import Description
from grls.retrieve.build import Building
from grls.retrieve.card import CardOptions, card_of
from grls.retrieve.changes import ChangedCount, Changes
from grls.retrieve.corpora import refuse_other_passages
from grls.retrieve.encoded.encode import refuse_unusable_corpus
from grls.retrieve.encoded.folder import (
    check_embeddings,
    read_encoded_manifest,
    refuse_other_dimension,
    refuse_other_part,
    refuse_other_rows,
    sampled_numbers,
    write_encoded_manifest,
)
from grls.retrieve.generative.options import USUAL_SEARCH
from grls.retrieve.hub import upload
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import Opening
from grls.retrieve.shared import folder_key
from grls.retrieve.spec import MANIFEST, refuse_own_members

log = logging.getLogger(__name__)

_NAMED = 10
"""Number of cut queries that warnings name; training may ask for a great many."""


class EncodedRetriever(ABC):
    """A retriever whose model encodes queries and passages.

    Args:
        encoder: The model, which encodes the queries and has encoded the passages.
        corpus: The N passages.
        batch_size: Texts encoded together.
        truncate_queries: Cut queries longer than the limit; false refuses them.
        progress: Show progress bars.

    Raises:
        ConfigError: The batch size is not positive.
        DataError: The corpus cannot be used.
    """

    kind: ClassVar[str]
    heeds: ClassVar[tuple[str, ...]] = ("batch_size", "truncate_queries")
    """The options of search that this kind can use."""
    embeddable: ClassVar[bool] = False
    """Whether a composite may embed its specification: its data are in its folder."""
    called: ClassVar[str]
    """Its name in error messages: "a dense retriever"."""
    file: ClassVar[str]
    """The file of the folder that holds the encoded passages."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields of ``grls.json`` that only this kind has."""

    def __init__(
        self,
        encoder: TextEncoder,
        corpus: Corpus,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
    ):
        check_counts(batch_size=batch_size)
        refuse_unusable_corpus(corpus)
        self.encoder = encoder
        self.corpus = corpus
        self.batch_size = batch_size
        self.truncate_queries = truncate_queries
        self.progress = progress
        self._cut = 0
        self._encoded_by: str | None = None

    @classmethod
    @abstractmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> TextEncoder:
        """Open the model of a folder, on the CPU."""

    @classmethod
    @abstractmethod
    def _made(cls, encoder: Any, corpus: Corpus, file: Path, options: dict[str, Any]) -> Self:
        """The retriever with the passages of a file; all its numbers are checked."""

    @abstractmethod
    def _write(self, file: Path) -> None:
        """Write the encoded passages."""

    @abstractmethod
    def _write_changed(self, kept: Numbers, added: Corpus | None, file: Path) -> None:
        """Write encoded passages: those of the numbers that are kept, then added ones, which are encoded."""

    @abstractmethod
    def describe(self) -> Description:
        """Its description in manifests and reports."""

    @abstractmethod
    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query; see :class:`~grls.retrieve.base.Retriever`."""

    def _recorded(self, folder: Path) -> dict[str, Any]:
        """Further fields of the ``grls.json`` of a folder."""
        return {}

    @abstractmethod
    def _again(self, numbers: list[int]) -> tuple[Iterable[Any], Iterable[Any]]:
        """Encoded passages by their numbers, from the file and encoded anew, an array each."""

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        """See :class:`~grls.retrieve.base.ChecksFolder`."""
        file = folder / self.file
        numbers = sampled_numbers(len(self.corpus))
        what = f"the model encodes {counted(len(numbers), 'passage')} as stored"
        yield what, file, lambda: refuse_other_rows(*self._again(numbers), file)

    @property
    def stages(self) -> tuple[str, ...]:
        """The training stages of the model."""
        return self.encoder.stages

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
            folder: A folder that :meth:`save_pretrained` or ``grls index`` wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
            precision: Precision in which queries are encoded: ``float32`` or ``bfloat16``.
            verify: Compare the model and the encoded passages with the manifest; false only checks that the
                numbers are finite.
            options: Other arguments of the constructor.

        Raises:
            DataError: The folder is not a retriever of this kind, or a file in it is damaged.
            MismatchError: Model, encoded passages and corpus do not belong together.
        """
        path = Path(folder)
        manifest = read_encoded_manifest(path, cls.kind, cls.called, cls.fields)
        corpus = Corpus.read(path)
        refuse_other_part("corpus", corpus.fingerprint, manifest, path)
        refuse_other_passages(corpus, manifest)
        refuse_other_settings(path / "model", manifest["settings"], path / MANIFEST)
        encoder = cls._load_encoder(path / "model", manifest)
        refuse_other_dimension(encoder.dimension, manifest, path / MANIFEST)
        file = path / cls.file
        check_embeddings(file, manifest, verify)
        if verify:
            refuse_other_part("model", encoder.fingerprint(), manifest, path)
        placed = encoder.to(device, precision)
        try:
            opened = cls._made(placed, corpus, file, options)
        except (DataError, MismatchError) as error:  # its checksum fits: a stranger's file
            raise (error if str(file) in str(error) else type(error)(f"{file}: {error.text}")) from None
        opened._encoded_by = manifest["model"]
        return opened

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`load_retriever`.

        Of the options of search, the batch size and ``truncate_queries`` have an effect.

        Raises:
            ConfigError: ``compile`` or ``rescore`` is set.
        """
        options = cls._search_options(folder, how)
        verify = asked_to_verify(how.verify) is not False
        return cls.from_pretrained(folder, how.device, how.precision, verify, **options)

    shared_by = staticmethod(folder_key)

    def reopened(self, folder: Path, how: Opening) -> Self:
        """The same retriever with other options of search; see :mod:`grls.retrieve.shared`.

        Raises:
            ConfigError: ``compile`` or ``rescore`` is set.
        """
        again, options = copy(self), self._search_options(folder, how)
        again.batch_size = options.get("batch_size", USUAL_SEARCH.batch_size)
        again.truncate_queries = options.get("truncate_queries", USUAL_SEARCH.truncate_queries)
        again._cut = 0
        return again

    @classmethod
    def _search_options(cls, folder: Path, how: Opening) -> dict[str, Any]:
        """The options of search that have an effect.

        Raises:
            ConfigError: One is set that has none.
        """
        search = how.searching
        if search is not None and search.compile:
            raise ConfigError(f"{folder} is {cls.called}, which has no step to compile: leave compile out.")
        if search is not None and search.rescore:
            raise ConfigError(f"{folder} is {cls.called}, which rescores nothing: leave rescore out.")
        return {} if search is None else {name: getattr(search, name) for name in cls.heeds}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

        Raises:
            MismatchError: The model has changed (trained on, or in another precision) since it encoded the
                passages.
            ConfigError: The folder exists and holds something else.
            WriteError: The disk is full or the place cannot be written.
        """
        model = self.encoder.fingerprint()
        if self._encoded_by not in (None, model):
            raise MismatchError(
                "the model has changed since it embedded the passages: refresh the retriever, or open it in "
                "float32, before saving it."
            )
        members = self._recorded(Path(folder))
        refuse_own_members(folder, members)
        with atomic_folder(folder, MANIFEST) as new:
            (new / "model").mkdir()
            self.encoder.write(new / "model")
            self._write(new / self.file)
            self.corpus.write(corpus_file(new))
            made = {
                "kind": self.kind,
                "model": model,
                "corpus": self.corpus.fingerprint,
                "metadata": self.corpus.metadata_fingerprint,
                "dimension": self.encoder.dimension,
                "max_tokens": self.encoder.max_tokens,
                "stages": list(self.stages),
                **members,
            }
            write_encoded_manifest(new, self.file, made)

    @classmethod
    def update(cls, folder: Path, output: Path, changes: Changes) -> ChangedCount:
        """Write a changed folder; only added passages are encoded. See :mod:`grls.retrieve.update`."""
        opened = cls.from_pretrained(folder, changes.device, batch_size=changes.batch_size)
        corpus, kept = changes.over(opened.corpus)
        with scratch_folder(output) as place:
            opened._write_changed(kept, changes.add, place / cls.file)
            made = cls._made(opened.encoder, corpus, place / cls.file, {})
            made._encoded_by = opened._encoded_by
            made.save_pretrained(output)
        return ChangedCount(len(corpus))

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private, card_of(self, folder, repository, CardOptions()))

    def fingerprint(self) -> str:
        """SHA-256 of the model (with its limits) and the corpus."""
        model = self._encoded_by or self.encoder.fingerprint()
        return hashlib.sha256(f"{model} {self.corpus.fingerprint}".encode()).hexdigest()

    def texts(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> list[str]:
        """The texts to encode: each query with its evidence so far.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        self._check_queries(queries)
        before = evidence or [()] * len(queries)
        return [self.encoder.query_text(q.text, e) for q, e in zip(queries, before, strict=True)]

    def ids_with(self, numbers: Numbers, scores: Floats) -> list[Hit]:
        """Passages by number as hits, in their order."""
        ids = self.corpus.ids(numbers.tolist())
        return [Hit(*pair) for pair in zip(ids, scores.tolist(), strict=True)]

    def _check_queries(self, queries: Sequence[Query]) -> None:
        limit = self.encoder.limit("query")
        for query in queries:
            if not query.text.strip():
                raise DataError(f"query {query.id!r} is empty; give it a text or remove it.")
            length = self.encoder.tokens(query.text)
            if length <= limit:
                continue
            what = f"query {query.id!r} has {length} tokens, the limit is {limit}: its end would be cut."
            if not self.truncate_queries:
                raise DataError(
                    f"{what} Shorten it, raise {Option('limits.input')} (of grls index), or accept the cut "
                    f"with {Option('search.truncate_queries', True)}."
                )
            self._cut += 1
            if self._cut <= _NAMED:
                log.warning(what)
            elif self._cut == _NAMED + 1:
                log.warning("more queries are longer than %d tokens and cut; they are not named.", limit)


def refuse_generative(how: Building, called: str) -> None:
    """Refuse options that only a generative retriever is built with.

    Raises:
        ConfigError: An option is set that has no effect on an encoder.
    """
    limits = ("limits.passage", "limits.query")
    how.refuse_unused(called, limits, f"set {Option('limits.input')} instead")
    how.refuse_unused(called, ("index.span_words",), "it reads whole passages: leave it out")
    how.refuse_unused(called, ("index.backend", "index.form"))
