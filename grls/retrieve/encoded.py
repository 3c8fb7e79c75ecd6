"""What retrievers share whose model encodes texts: one folder form, one way to refuse what does not belong.

The folder holds ``model/``, one file with what the model made of the passages, ``corpus.jsonl`` and
``grls.json``, which ties the three together by checksums and fingerprints. What that file holds and how
passages are ranked by it is the kind's own: :mod:`grls.retrieve.dense.retriever`,
:mod:`grls.retrieve.sparse`, :mod:`grls.retrieve.multi_vector`.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Numbers
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.array_files import asked_to_verify
from grls.io.files import atomic_folder, sha256, write_json
from grls.io.progress import Progress
from grls.models.base import Floats
from grls.models.load.settings import refuse_other_settings, settings_in
from grls.models.text_encoder import TextEncoder, passage_text
from grls.retrieve.build import Building
from grls.retrieve.hub import upload
from grls.retrieve.queries import check_counts, queries_of, reachable
from grls.retrieve.registry import Opening
from grls.retrieve.spec import MANIFEST, OPTIONS, read_spec, refuse_own_members

log = logging.getLogger(__name__)

FORMAT = 1

_FIELDS = (
    "format", "kind", "model", "corpus", "embeddings", "dimension", "max_tokens", "stages", "settings",
)  # fmt: skip
"""What stands in the ``grls.json`` of every kind."""

_TOLD = 10
"""Queries that are cut and named in a warning; training may ask of a great many."""

_REBUILD = "make it again with `grls index`."


class EncodedRetriever(ABC):
    """A retriever by what a model makes of queries and passages.

    Args:
        encoder: Reads the queries, and has read the passages.
        corpus: The N passages.
        batch_size: Texts encoded together.
        truncate_queries: Let queries longer than the limit be cut instead of refusing them.
        progress: Show progress bars.

    Raises:
        ConfigError: The batch size is not positive.
        DataError: The corpus cannot be used.
    """

    kind: ClassVar[str]
    heeds: ClassVar[tuple[str, ...]] = ("batch_size", "truncate_queries")
    """The options of search that it can use."""
    called: ClassVar[str]
    """What errors call it: "a dense retriever"."""
    file: ClassVar[str]
    """Where the folder keeps what the model made of the passages."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields of its ``grls.json`` beside those of every kind."""

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
    def _made(cls, encoder: Any, corpus: Corpus, file: Path, checked: bool, options: dict[str, Any]) -> Self:
        """The retriever, with what its file holds; ``checked``: the file is as it was saved."""

    @abstractmethod
    def _write(self, file: Path) -> None:
        """Write what the model made of the passages."""

    def _recorded(self, folder: Path) -> dict[str, Any]:
        """Further fields of the ``grls.json`` of a folder."""
        return {}

    @property
    def stages(self) -> tuple[str, ...]:
        """The training stages that the model has gone through."""
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
            folder: What :meth:`save_pretrained` (or ``grls index``) wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
            precision: ``float32`` or ``bfloat16``, in which queries are encoded.
            verify: Compare model and passages' file with the manifest; otherwise its numbers need only be
                finite (either reads every byte once).
            options: Other arguments of the constructor.

        Raises:
            DataError: The folder is no retriever of this kind, or a file in it is damaged.
            MismatchError: Model, encoded passages and corpus do not belong together.
        """
        path = Path(folder)
        manifest = cls.read_manifest(path)
        corpus = Corpus.read(path)
        if corpus.fingerprint != manifest["corpus"]:
            raise _mismatch(path, "corpus")
        refuse_other_settings(path / "model", manifest.get("settings"), path / MANIFEST)
        encoder = cls._load_encoder(path / "model", manifest)
        file = path / cls.file
        if not file.is_file() or file.stat().st_size != manifest["embeddings"]["bytes"]:
            raise DataError(f"the embeddings are missing or truncated; {_REBUILD}", file)
        if verify and sha256(file) != manifest["embeddings"]["sha256"]:
            raise MismatchError(f"{file}: these are not the embeddings of this retriever; {_REBUILD}")
        if verify and encoder.fingerprint() != manifest["model"]:
            raise _mismatch(path, "model")
        # What is as it was saved is finite: then it was checked.
        opened = cls._made(encoder.to(device, precision), corpus, file, verify, options)
        opened._encoded_by = manifest["model"]
        return opened

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`grls.retrieve.registry.load`.

        Of the options of search it heeds the batch size and ``truncate_queries``.

        Raises:
            ConfigError: ``compile`` or ``rescore`` is set.
        """
        search = how.searching
        if search is not None and search.compile:
            raise ConfigError(f"{folder} is {cls.called}, which has no step to compile: leave compile out.")
        if search is not None and search.rescore:
            raise ConfigError(f"{folder} is {cls.called}, which rescores nothing: leave rescore out.")
        options = {} if search is None else {name: getattr(search, name) for name in cls.heeds}
        verify = asked_to_verify(how.verify) is not False
        return cls.from_pretrained(folder, how.device, how.precision, verify, **options)

    @classmethod
    def read_manifest(cls, folder: Path) -> dict[str, Any]:
        """The manifest of a folder of this kind.

        Raises:
            DataError: There is none, or it is not one of ours.
        """
        file = folder / MANIFEST
        manifest = read_spec(folder)
        if manifest.get("kind", cls.kind) != cls.kind:
            raise DataError(
                f"this is a retriever of the kind {manifest['kind']!r}, and {cls.called} is wanted here: "
                f"give the folder of one, or make one with `grls index --kind {cls.kind}`.",
                file,
            )
        if (manifest.get("kind"), manifest.get("format")) != (cls.kind, FORMAT):
            raise DataError(f"expected {cls.called} of format {FORMAT}; {_REBUILD}", file)
        kinds = {"model": str, "corpus": str, "embeddings": dict, "max_tokens": int}
        wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
        if wrong or not {"bytes", "sha256"} <= set(manifest["embeddings"]):
            raise DataError(
                f"the key {(wrong or ['embeddings'])[0]!r} is missing or malformed; {_REBUILD}", file
            )
        unknown = sorted(set(manifest) - {*_FIELDS, *cls.fields, *OPTIONS})
        if unknown:
            raise DataError(
                f"unknown field {unknown[0]!r} of kind {cls.kind!r}; known are "
                f"{', '.join((*_FIELDS, *cls.fields, *OPTIONS))}.",
                file,
            )
        return manifest

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
                "the model is not as it was when it embedded the passages: refresh the retriever, or open it "
                "in float32, before it is saved."
            )
        members = self._recorded(Path(folder))
        refuse_own_members(folder, members)
        with atomic_folder(folder, MANIFEST) as new:
            (new / "model").mkdir()
            self.encoder.write(new / "model")
            self._write(new / self.file)
            self.corpus.write(corpus_file(new))
            size = (new / self.file).stat().st_size
            manifest = {
                "format": FORMAT,
                "kind": self.kind,
                "model": model,
                "corpus": self.corpus.fingerprint,
                "embeddings": {"bytes": size, "sha256": sha256(new / self.file)},
                "dimension": self.encoder.dimension,
                "max_tokens": self.encoder.max_tokens,
                "stages": list(self.stages),
                "settings": settings_in(new / "model"),
                **members,
            }
            write_json(new / MANIFEST, manifest)

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private)

    def fingerprint(self) -> str:
        """SHA-256 of what passages are found by: the model (its limits, too) and the corpus."""
        model = self._encoded_by or self.encoder.fingerprint()
        return hashlib.sha256(f"{model} {self.corpus.fingerprint}".encode()).hexdigest()

    def texts(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> list[str]:
        """What is encoded of queries, each with the passages found so far.

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
                    f"{what} Shorten it, raise --limits.input (of grls index), or accept the cut with "
                    "--truncate_queries true."
                )
            self._cut += 1
            if self._cut <= _TOLD:
                log.warning(what)
            elif self._cut == _TOLD + 1:
                log.warning("more queries are longer than %d tokens and cut; they are not named.", limit)


class RanksByScores(EncodedRetriever):
    """One that ranks by numbers which it can give of all passages; DONE is not among them."""

    scores_done = False
    least_score: float

    @abstractmethod
    def best(
        self, asked: Any, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """The k best passages of each of some queries, equal scores in the order of the corpus; their scores.

        Args:
            asked: What :meth:`encode` made of all queries.
            queries: The places of those that are searched for.
            k: Most passages.
            among: Numbers of those that they may find, ascending; None: all.
        """

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Any:
        """What the model makes of the texts of queries."""

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query, best first; ``Hit.score`` is the similarity.

        Equal scores go in the order of the corpus. A passage that scores no more than ``least_score`` is no
        hit.

        Raises:
            ConfigError: k is below 1.
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        check_counts(k=k)
        given = queries_of(queries)
        texts = self.texts(given)
        among = self.among(given, allow)
        asked = self.encode(texts)
        found: dict[int, list[Hit]] = {}
        with Progress(len(given), self.kind, "queries", shown=self.progress or None) as bar:
            for places, some in among:
                for first in range(0, len(places), self.batch_size):
                    batch = places[first : first + self.batch_size]
                    best = self.best(asked, batch, k, some)
                    found |= {q: self.ids_with(*one) for q, one in zip(batch, best, strict=True)}
                    bar.update(len(batch))
        return [found[query] for query in range(len(given))]

    def among(self, queries: Sequence[Query], allow: Allow) -> list[tuple[list[int], Numbers | None]]:
        """Places of queries that may find the same, and numbers of what that is; None: all."""
        within = reachable(queries, allow, self.corpus)
        groups = [
            [query for query, own in enumerate(within.places) if own == place]
            for place in dict.fromkeys(within.places)
        ]
        return [(places, within.of(places[0])) for places in groups]


def refuse_generative(how: Building, called: str) -> None:
    """Refuse what only a generative retriever is built with.

    Raises:
        ConfigError: An option is given that an encoder has no use for.
    """
    limits = ("limits.passage", "limits.query")
    how.refuse_unused(called, limits, "set --limits.input instead")
    how.refuse_unused(called, ("index.span_words",), "it reads whole passages: leave it out")
    how.refuse_unused(called, ("index.backend", "index.form"))


def refuse_unusable_corpus(corpus: Corpus) -> None:
    """Refuse a corpus that has no passage, or one with the id of DONE.

    Raises:
        DataError: It does.
    """
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )
    if corpus.numbers([DONE_ID])[0] is not None:
        raise DataError(f"the passage id {DONE_ID!r} is reserved; rename that passage.", corpus.source)


def encoded_passages(
    encoder: TextEncoder, corpus: Corpus, encode: Any, shard: int, progress: bool = False
) -> Iterator[Any]:
    """What a model makes of a corpus, a shard of passages at a time; in the end tells of those that were cut.

    Args:
        encoder: The model.
        corpus: The passages.
        encode: From texts of passages to what is wanted of them.
        shard: Passages at a time.
        progress: Show a progress bar.
    """
    refuse_unusable_corpus(corpus)
    cut = 0
    with Progress(len(corpus), "embed", "passages", shown=progress) as bar:
        for first in range(0, len(corpus), shard):
            numbers = range(first, min(first + shard, len(corpus)))
            texts = [passage_text(passage) for passage in corpus.passages(numbers)]
            cut += encoder.count_cut(texts)
            with encoder.telling(bar.update):
                found = encode(texts)
            yield found
    if cut:
        log.warning(encoder.cut_notice(cut, len(corpus), "--limits.input (of grls index)"))


def top(scores: Floats, numbers: Numbers, k: int) -> tuple[Numbers, Floats]:
    """The k best of some passages, equal scores by number, ascending.

    Args:
        scores: ``[n]``.
        numbers: ``[n]``, ascending.
        k: Most.
    """
    if len(scores) > k:
        least = np.partition(scores, -k)[-k] if k else np.inf
        kept = scores >= least
        scores, numbers = scores[kept], numbers[kept]
    order = np.argsort(-scores, kind="stable")[:k]
    return numbers[order], scores[order]


def _mismatch(folder: Path, what: str) -> MismatchError:
    return MismatchError(f"{folder}: the embeddings were made with another {what} than this one; {_REBUILD}")
