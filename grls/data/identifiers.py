"""Identifiers: what a generator writes in place of whole passages, and the kinds of them.

Legend: N passages, V identifiers.

An identifier is a text (a title, keywords, a query that the passage answers) or a sequence of new rows of the
vocabulary (a code). A passage may have several; then its score combines all of them
(:mod:`grls.retrieve.generative.span_scores`). Several passages may have equal ones, as they may have equal
texts. Identifiers are numbered in the order of their passages; DONE comes last. They are not stored: a kind
makes them again, of any of its passages.

A kind is one dataclass with ``identify``. To add one, write a file and call :func:`register_identifiers`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.corpus_table import BATCH
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.arguments import options_of
from grls.io.files import atomic_folder, read_json, write_json
from grls.io.recipes import VARIABLE, load_plugins
from grls.io.seal import FILES, changed, seal

IDENTIFIERS = "identifiers.json"
"""The file of a folder of identifiers: the kind, its options, and the checksums of what it has learned."""
FOLDER = "identifiers"
"""Such a folder beside a trained model, and in a retriever folder."""

Identifier = str | tuple[str, ...]
"""A text, or the names of rows of the vocabulary."""

Ints = npt.NDArray[np.int64]


class IdentifierKind:
    """How passages are identified; a kind is a dataclass of its options."""

    @property
    def vocabulary(self) -> Sequence[str]:
        """The names of the rows of the vocabulary that its identifiers are made of, beside texts.

        Training adds them to tokenizer and model.
        """
        return ()

    @cached_property
    def state(self) -> dict[str, Any]:
        """What it has learned, by name: NumPy arrays, and values of JSON. It is saved with the options."""
        return {}

    def learn(self, corpus: Corpus) -> None:
        """Fill ``state`` from the corpus whose passages a model is to be trained to identify."""

    def knowing(self, corpus: Corpus) -> Self:
        """This kind, or a copy that also identifies the passages of another corpus, as those added later."""
        return self

    def identify(self, corpus: Corpus) -> Iterable[Sequence[Identifier]]:
        """The identifiers of each passage, at least one; they depend on this passage alone."""
        raise NotImplementedError

    @property
    def record(self) -> dict[str, Any]:
        """Kind and options, as JSON."""
        target = f"{type(self).__module__}:{type(self).__qualname__}"
        name = next((name for name, known in KINDS.items() if known == target), target)
        return {"kind": name, "options": asdict(self)}  # type: ignore[call-overload]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of kind, options and state."""
        digest = hashlib.sha256(json.dumps(self.record, sort_keys=True).encode())
        for name, value in sorted(self.state.items()):
            plain = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()
            digest.update(name.encode() + plain)
        return digest.hexdigest()

    def write(self, folder: Path, **fields: Any) -> None:
        """Write the folder of identifiers, an existing one; ``fields``: more of its ``identifiers.json``."""
        for name, value in self.state.items():
            if isinstance(value, np.ndarray):
                np.save(folder / f"{name}.npy", value, allow_pickle=False)
            else:
                write_json(folder / f"{name}.json", value)
        seal(folder / IDENTIFIERS, {**self.record, **fields})


KINDS = {
    "spans": "grls.identifiers.spans:Spans",
    "field": "grls.identifiers.field:Field",
    "keywords": "grls.identifiers.keywords:Keywords",
    "queries": "grls.identifiers.queries:PseudoQueries",
    "codes": "grls.identifiers.codes:Codes",
    "union": "grls.identifiers.union:Union",
}
"""Kind of identifiers -> ``module:class``."""


def register_identifiers(kind: str, target: str) -> None:
    """Add a kind of identifiers.

    Args:
        kind: Its name, for ``grls identify`` and in ``identifiers.json``.
        target: ``module:class``; the class is a dataclass that derives from :class:`IdentifierKind`.

    Raises:
        ConfigError: The name is taken by another class.
    """
    if KINDS.get(kind, target) != target:
        raise ConfigError(f"the identifiers {kind!r} are {KINDS[kind]} already; choose another name.")
    KINDS[kind] = target


def identifier_kind(name: str, options: Mapping[str, Any]) -> IdentifierKind:
    """A kind of identifiers by its name, with options."""
    if name not in KINDS:
        load_plugins()
    if name not in KINDS:
        raise ConfigError(
            f"unknown kind of identifiers {name!r}; known are {', '.join(KINDS)}. One of a plugin: name its "
            f"module in {VARIABLE}."
        )
    module, _, cls = KINDS[name].partition(":")
    kind: IdentifierKind = options_of(
        getattr(import_module(module), cls), options, f"identify {name}", "options"
    )
    return kind


def read_kind(folder: str | Path) -> IdentifierKind:
    """A kind of identifiers from its folder, whose files are compared with their checksums."""
    file = Path(folder) / IDENTIFIERS
    if not file.is_file():
        raise DataError("there are no identifiers here: make them with `grls identify`.", file)
    content = read_json(file)
    fault = changed(file, content) if isinstance(content, dict) else f"{file} holds no JSON object"
    name, options = (content.get(key) for key in ("kind", "options")) if not fault else ("", {})
    if fault or not isinstance(name, str) or not isinstance(options, dict):
        raise DataError(
            f"{fault or 'kind or options are missing'}: make it again with `grls identify`.", file
        )
    try:
        kind = identifier_kind(name, options)
    except ConfigError as error:
        raise DataError(error.text, file) from error
    for path in map(Path(folder).joinpath, content.get(FILES, {})):
        array = path.suffix == ".npy"
        kind.state[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False) if array else read_json(path)
    return kind


def kind_for(folder: str | Path, corpus: Corpus) -> IdentifierKind:
    """The identifiers of a folder for training on a corpus, of which they must be."""
    kind, made = read_kind(folder), read_json(Path(folder) / IDENTIFIERS).get("corpus")
    if made != corpus.fingerprint:
        given = [
            f"{Option(f'options.{part.name}', json.dumps(value) if isinstance(value, list) else value)} "
            for part in fields(kind)  # type: ignore[arg-type]
            if (value := getattr(kind, part.name)) != part.default
        ]
        raise MismatchError(
            f"the identifiers {folder} are of another corpus: make them again by "
            f"`grls identify {quote(kind.record['kind'])} {''.join(given)}{Option('corpus', corpus.source)} "
            f"{Option('output', folder)}`."
        )
    return kind


def make_identifiers(kind: IdentifierKind, corpus: Corpus, output: str | Path) -> Identifiers:
    """Learn from a corpus what the kind needs, and write the folder: all of it, or nothing."""
    with atomic_folder(output, IDENTIFIERS) as new:
        kind.learn(corpus)
        identifiers = Identifiers(kind, corpus)
        kind.write(new, corpus=corpus.fingerprint)
    return identifiers


class Identifiers:
    """The identifiers of a corpus.

    Args:
        kind: How passages are identified.
        corpus: The passages, which the kind knows.
        offsets: ``[N + 1]`` where the identifiers of each passage begin; None: they are counted.
    """

    def __init__(self, kind: IdentifierKind, corpus: Corpus, offsets: Ints | None = None):
        self.kind, self.corpus, self.source = kind, corpus, corpus.source
        if offsets is None:
            counts = np.fromiter(map(len, kind.identify(corpus)), dtype=np.int64, count=len(corpus))
            if len(none := np.flatnonzero(counts == 0)):
                raise DataError(
                    f"the passage {corpus[int(none[0])].id!r} has no identifier by {kind!r}; every passage "
                    "needs one.",
                    corpus.source,
                )
            offsets = np.concatenate(([0], np.cumsum(counts)))
        self.offsets: Ints = offsets

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def several(self) -> bool:
        """Whether a passage has several; else identifiers have the numbers of their passages."""
        return len(self) > len(self.corpus)

    @cached_property
    def owners(self) -> Ints:
        """``[V + 1]`` the number of the passage of every identifier, then N, the number of DONE."""
        return np.repeat(np.arange(len(self.offsets)), [*np.diff(self.offsets), 1])

    def of(self, passages: Sequence[int] | Ints) -> Ints:
        """The numbers of the identifiers of passages, in the order of the passages; N stands for DONE."""
        numbers = np.asarray(passages, dtype=np.int64)
        first = self.offsets[numbers]
        counts = np.append(self.offsets, len(self) + 1)[numbers + 1] - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        identifiers: Ints = np.repeat(first, counts) + within
        return identifiers

    def listed(self, numbers: Sequence[int] | Ints) -> list[Identifier]:
        """The identifiers of these numbers."""
        wanted = np.asarray(numbers, dtype=np.int64)
        owners = np.unique(self.owners[wanted])
        known = dict(
            zip(owners.tolist(), self.kind.identify(self.corpus.select(owners.tolist())), strict=True)
        )
        places = zip(self.owners[wanted].tolist(), wanted.tolist(), strict=True)
        return [known[owner][number - int(self.offsets[owner])] for owner, number in places]

    def rows(self, codec: Codec, numbers: Sequence[int] | Ints) -> list[TokenIds]:
        """The token sequences of the identifiers of these numbers."""
        return token_rows(codec, self.listed(numbers))

    def batches(self, codec: Codec) -> Iterator[list[TokenIds]]:
        """The token sequences of all identifiers, in order."""
        batch: list[Identifier] = []
        for identifiers in self.kind.identify(self.corpus):
            batch += identifiers
            if len(batch) >= BATCH:
                yield token_rows(codec, batch)
                batch = []
        if batch:
            yield token_rows(codec, batch)

    def changed(self, kept: Ints, added: Identifiers | None, corpus: Corpus) -> Identifiers:
        """Those of ``corpus``, which holds the passages ``kept``, followed by those of ``added``."""
        counts = np.diff(self.offsets)[kept]
        if added is not None:
            counts = np.append(counts, np.diff(added.offsets))
        kind = self.kind if added is None else added.kind
        return Identifiers(kind, corpus, np.concatenate(([0], np.cumsum(counts))))


def passage_keys(corpus: Corpus) -> npt.NDArray[np.uint64]:
    """``[N]`` a number of each passage, of id, title and text: what a state knows a passage by."""
    plain = b"".join(hashlib.sha256("\0".join(passage).encode()).digest()[:8] for passage in corpus)
    return np.frombuffer(plain, dtype="<u8").astype(np.uint64)


def token_rows(codec: Codec, identifiers: Sequence[Identifier]) -> list[TokenIds]:
    """Identifiers as token sequences with the end token."""
    texts = [Passage("", one) for one in identifiers if isinstance(one, str)]
    rows = iter(codec.passages(texts))
    return [next(rows) if isinstance(one, str) else codec.named(one) for one in identifiers]


def refuse_missing_rows(kind: IdentifierKind, codec: Codec, model: str) -> None:
    """Refuse a model whose tokenizer lacks rows that the identifiers are made of."""
    known = codec.tokenizer.get_vocab()
    if lacking := [name for name in kind.vocabulary if name not in known]:
        raise MismatchError(
            f"the tokenizer of {model} lacks {len(lacking):,} rows of the identifiers, such as {lacking[0]}: "
            f"train the model with {Option('data.identifiers')}."
        )
