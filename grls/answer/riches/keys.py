"""The keys of a corpus: the texts that a model may quote, and the passages that they stand for.

Kinds of key (arXiv 2407.00361, "retrieval keys"): the whole paragraph with or without its title, its
sentences, its title, its title with the header of its section (``metadata.section``), or propositions: short
statements of one fact each, read from a file that :mod:`grls.answer.riches.propositions` or another program
has written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np

from grls.answer.riches.keyset import MANIFEST, KeyOrigin, Keys
from grls.answer.riches.options import KeyKind
from grls.data.codec import controls, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.spelling import encoded_texts
from grls.data.types import Passage
from grls.decode.interleave.markers import check_markers
from grls.errors import ConfigError, DataError, Option, one_of
from grls.index.build import index_sequences
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.rows import MAX_LENGTH
from grls.index.substring import SubstringIndex
from grls.io.files import refuse_foreign, refuse_unwritable, sha256
from grls.io.jsonl import read_jsonl

__all__ = ["SHARED", "Keys", "build_keys", "keys_in", "sentences"]

SHARED = ("title", "header")
"""Kinds whose keys stand for many passages each; :mod:`grls.answer.riches.within` ranks these."""

log = logging.getLogger(__name__)

_BATCH = 1000
_LINES = 10_000


def build_keys(
    corpus: Corpus,
    tokenizer: Any,
    kind: KeyKind = "sentence",
    anywhere: bool = False,
    propositions: str | Path | None = None,
    markers: tuple[str, str] = ("«", "»"),
) -> Keys:
    """Make the keys of a corpus and index them.

    A key is written with a space before it, so that a word has the same tokens within and at the start of a
    key.

    Args:
        corpus: The passages.
        tokenizer: The model's tokenizer.
        kind: The kind of key.
        anywhere: A quote may begin anywhere in a key, not only at its start.
        propositions: For the kind proposition: JSONL with ``passage`` (its id) and ``text``, null for a
            passage without a proposition.
        markers: The texts that open and close a quote: no key may hold them.

    Raises:
        ConfigError: The kind is unknown, ``propositions`` is missing for the kind proposition or set for
            another one, or a marker cannot be used.
        DataError: The corpus is empty, or a key holds a marker, is too long, or cannot be written by the
            tokenizer.
    """
    origin = _origin(corpus, tokenizer, kind, anywhere, propositions, markers)
    source = corpus.source if propositions is None else str(propositions)
    pairs = _pieces(corpus, kind) if propositions is None else _propositions(corpus, Path(propositions))
    places: dict[str, list[int]] = {}
    for text, number in pairs:
        held = places.setdefault(text, [])
        if number not in held[-1:]:  # a file of propositions may return to a passage: see `set` below
            held.append(number)
    if not places:
        raise DataError(f"there is no {kind} to quote: every one is empty.", source)
    texts = tuple(places)
    _refuse_markers(corpus, places, markers, source)
    rows = list(_tokenized(tokenizer, texts))
    _refuse_unwritable(corpus, tokenizer, places, rows, source)
    if not anywhere:
        _refuse_long(corpus, places, rows, source)
    end = tokenizer.eos_token_id
    index: KeyIndex = (
        SubstringIndex.build(rows) if anywhere
        else PrefixKeys(index_sequences([np.append(row, end) for row in rows], end))
    )  # fmt: skip
    passages = tuple(tuple(sorted(set(numbers))) for numbers in places.values())
    return Keys(texts, passages, index, origin)


def keys_in(
    folder: str | Path,
    corpus: Corpus,
    tokenizer: Any,
    kind: KeyKind = "sentence",
    anywhere: bool = False,
    propositions: str | Path | None = None,
    markers: tuple[str, str] = ("«", "»"),
) -> Keys:
    """Open the keys of a folder; if the folder is empty, make the keys and store them there.

    Args:
        folder: The folder.
        corpus: The passages.
        tokenizer: The model's tokenizer.
        kind: The kind of key.
        anywhere: A quote may begin anywhere in a key.
        propositions: The file of propositions.
        markers: The texts that open and close a quote.

    Raises:
        ConfigError: As :func:`build_keys`, or the folder holds other files.
        DataError: As :func:`build_keys`.
        IndexFormatError: The keys of the folder are damaged, or of another format.
        MismatchError: The keys of the folder were made from other data, or with other options.
        WriteError: The folder cannot be written.
    """
    if (Path(folder) / MANIFEST).exists():
        return Keys.load(folder, _origin(corpus, tokenizer, kind, anywhere, propositions, markers))
    refuse_foreign(folder, MANIFEST)
    refuse_unwritable(folder, folder=True)
    made = build_keys(corpus, tokenizer, kind, anywhere, propositions, markers)
    made.save(folder)
    return made


def _origin(
    corpus: Corpus,
    tokenizer: Any,
    kind: KeyKind,
    anywhere: bool,
    propositions: str | Path | None,
    markers: tuple[str, str],
) -> KeyOrigin:
    """The origin of keys.

    Raises:
        ConfigError: The kind is unknown, or ``propositions`` is missing for the kind proposition or set for
            another one.
        DataError: The file of propositions is missing, or a section is no text.
    """
    one_of(get_args(KeyKind), "keys.", kind=kind)
    if (kind == "proposition") != (propositions is not None):
        raise ConfigError(
            f"{Option('keys.kind', 'proposition')} and {Option('keys.propositions', 'FILE')} go together."
        )
    check_markers(tokenizer, *markers)  # before the work begins
    source = ""
    if propositions is not None:
        if not Path(propositions).is_file():
            raise DataError("no such file; `grls prepare propositions` writes one.", propositions)
        source = sha256(propositions)
    elif kind == "header":
        digest = hashlib.sha256()
        for section in _sections(corpus):
            digest.update(json.dumps(section).encode())
        source = digest.hexdigest()
    fingerprint = tokenizer_fingerprint(tokenizer)
    return KeyOrigin(kind, anywhere, (markers[0], markers[1]), fingerprint, corpus.fingerprint, source)


def _sections(corpus: Corpus) -> Iterator[str]:
    """The header of each passage's section; empty if the metadata do not name it.

    Raises:
        DataError: A header is no text.
    """
    for number, metadata in enumerate(corpus.metadata()):
        section = metadata.get("section") or ""
        if not isinstance(section, str):
            raise DataError(
                f"metadata.section of the passage {corpus.ids([number])[0]!r} is {section!r}, no text.",
                corpus.source,
            )
        yield section


def _pieces(corpus: Corpus, kind: KeyKind) -> Iterator[tuple[str, int]]:
    if kind == "header":
        for number, (passage, section) in enumerate(zip(corpus, _sections(corpus), strict=True)):
            text = ": ".join(part for part in (passage.title.strip(), section.strip()) if part)
            if text:
                yield " ".join(text.split()), number
        return
    for number, passage in enumerate(corpus):
        for text in _of(passage, kind):
            if text.strip():
                yield " ".join(text.split()), number


def _of(passage: Passage, kind: KeyKind) -> Iterable[str]:
    if kind == "sentence":
        return sentences(passage.text)
    if kind == "title":
        return (passage.title,)
    return (f"{passage.title}: {passage.text}" if kind == "titled" and passage.title else passage.text,)


def _propositions(corpus: Corpus, file: Path) -> Iterator[tuple[str, int]]:
    lines = iter(_lines(file))
    seen: set[int] = set()
    while batch := list(islice(lines, _LINES)):
        # One look-up for the batch: every look-up hashes all ids of the corpus.
        numbers = corpus.numbers([name for _, name, _ in batch])
        for (line, name, text), number in zip(batch, numbers, strict=True):
            if number is None:
                raise DataError(f"the passage {name!r} is not in {corpus.source}.", file, line)
            seen.add(number)
            if text is not None:
                yield " ".join(text.split()), number
    if len(seen) < len(corpus):
        log.warning(
            "%s: %d of %d passages have no line, so nothing can quote them; `grls prepare propositions` goes "
            "on where it stopped.", file, len(corpus) - len(seen), len(corpus),
        )  # fmt: skip


def _lines(file: Path) -> Iterator[tuple[int, str, str | None]]:
    """Line number, passage and text; the text is None if the passage has no proposition."""
    for line, record in read_jsonl(file):
        name, text = record.get("passage"), record.get("text", "")
        if not isinstance(name, str) or not (text is None or (isinstance(text, str) and text.strip())):
            raise DataError(
                "expected the fields 'passage' (an id) and 'text' (null, or not empty).", file, line
            )
        yield line, name, text


def _tokenized(tokenizer: Any, texts: tuple[str, ...]) -> Iterator[np.ndarray]:
    for first in range(0, len(texts), _BATCH):
        batch = [f" {text}" for text in texts[first : first + _BATCH]]
        for row in encoded_texts(tokenizer, batch)["input_ids"]:
            yield np.array(row, dtype=np.int64)


def _refuse_markers(
    corpus: Corpus, places: dict[str, list[int]], markers: tuple[str, str], source: str
) -> None:
    for text, numbers in places.items():
        held = [marker for marker in markers if marker in text]
        if held:
            raise DataError(
                f"a key of the passage {corpus.ids(numbers[:1])[0]!r} holds the marker {held[0]!r}: choose "
                """other markers, as '["⟦", "⟧"]'.""",
                source,
            )


def _refuse_unwritable(
    corpus: Corpus, tokenizer: Any, places: dict[str, list[int]], rows: list[np.ndarray], source: str
) -> None:
    decoded = tokenizer.batch_decode(rows)
    barred = {*controls(tokenizer), tokenizer.unk_token_id}
    for (text, numbers), row, written in zip(places.items(), rows, decoded, strict=True):
        unknown = not barred.isdisjoint(row.tolist())
        if not len(row) or unknown or set(letters(text)) - set(letters(written)):
            raise DataError(
                f"the tokenizer cannot write a key of the passage {corpus.ids(numbers[:1])[0]!r}: "
                f"{text[:60]!r}. Take its unknown characters out of the corpus, or another model.",
                source,
            )


def _refuse_long(corpus: Corpus, places: dict[str, list[int]], rows: list[np.ndarray], source: str) -> None:
    for (text, numbers), row in zip(places.items(), rows, strict=True):
        if len(row) >= MAX_LENGTH:  # the end token takes one place
            raise DataError(
                f"a key of the passage {corpus.ids(numbers[:1])[0]!r} has {len(row):,} tokens "
                f"({text[:60]!r}…); at most {MAX_LENGTH - 1:,} fit. Split the passage into shorter ones, or "
                "take keys of another kind.",
                source,
            )


def letters(text: str) -> str:
    """The characters of a text without case and form, white space and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in plain if unicodedata.category(character)[0] in "LNS")
