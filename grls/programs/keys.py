"""What a model may quote: the keys of a corpus, and the passages they stand for.

Kinds of key (arXiv 2407.00361, "retrieval keys"): the whole paragraph with or without its title, its
sentences, its title, or propositions: short statements of one fact each that somebody has written for every
passage, read from a file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from grls.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.store import index_sequences
from grls.index.substring import SubstringIndex
from grls.jsonl import read_jsonl
from grls.text import tokenizer_fingerprint
from grls.types import Passage

KeyKind = Literal["sentence", "paragraph", "titled", "title", "proposition"]

_END = re.compile(r"[.!?][\"')\]”’]*\s+(?=[\"'(\[“‘]?[A-Z0-9])")
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|No|vs|etc|e\.g|i\.e|c|ca)\.\s*$")
_BATCH = 1000


@dataclass(frozen=True)
class Keys:
    """N keys and their index.

    Attributes:
        texts: The text of each.
        passages: Numbers of the passages that each stands for.
        index: What may be quoted.
        tokenizer: Fingerprint of the tokenizer they were written with.
        corpus: Fingerprint of the corpus.
        markers: What opens and closes a key, and stands in none.
    """

    texts: tuple[str, ...]
    passages: tuple[tuple[int, ...], ...]
    index: KeyIndex
    tokenizer: str
    corpus: str
    markers: tuple[str, str]


def build_keys(
    corpus: Corpus,
    tokenizer: Any,
    kind: KeyKind = "sentence",
    anywhere: bool = False,
    propositions: str | Path | None = None,
    markers: tuple[str, str] = ("«", "»"),
) -> Keys:
    """Make the keys of a corpus and index them.

    A key is written with a space before it, so that a word has the same tokens within a key and at its begin.

    Args:
        corpus: The passages.
        tokenizer: The model's.
        kind: What a key is.
        anywhere: A quote may begin anywhere in a key, not only where the key does.
        propositions: JSONL with ``passage`` (its id) and ``text``, for that kind.
        markers: What opens and closes a key: no key may hold them.

    Raises:
        ConfigError: The kind is unknown, or goes with ``propositions`` and has none (or the other way round).
        DataError: The corpus is empty, a key holds a marker, or the tokenizer cannot write one.
    """
    if kind not in get_args(KeyKind):
        raise ConfigError(f"unknown kind of key {kind!r}; expected one of {', '.join(get_args(KeyKind))}.")
    if (kind == "proposition") != (propositions is not None):
        raise ConfigError("--keys proposition and --propositions FILE go together.")
    pairs = _pieces(corpus, kind) if propositions is None else _propositions(corpus, Path(propositions))
    places: dict[str, list[int]] = {}
    for text, number in pairs:
        held = places.setdefault(text, [])
        if number not in held[-1:]:
            held.append(number)
    if not places:
        raise DataError(f"there is no {kind} to quote: every one is empty.", corpus.source)
    texts = tuple(places)
    source = corpus.source if propositions is None else str(propositions)
    _refuse_markers(corpus, places, markers, source)
    rows = list(_tokenized(tokenizer, texts))
    _refuse_unwritable(corpus, tokenizer, places, rows, source)
    end = tokenizer.eos_token_id
    index: KeyIndex = (
        SubstringIndex.build(rows) if anywhere
        else PrefixKeys(index_sequences([np.append(row, end) for row in rows], end))
    )  # fmt: skip
    passages = tuple(tuple(numbers) for numbers in places.values())
    return Keys(texts, passages, index, tokenizer_fingerprint(tokenizer), corpus.fingerprint, markers)


def sentences(text: str) -> list[str]:
    """The sentences of a text, as they stand in it."""
    ends = [match.end() for match in _END.finditer(text) if not _ABBREVIATION.search(text[: match.end()])]
    parts = [text[a:b].strip() for a, b in pairwise([0, *ends, len(text)])]
    return [part for part in parts if part]


def _pieces(corpus: Corpus, kind: KeyKind) -> Iterator[tuple[str, int]]:
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
    for line, record in read_jsonl(file):
        name, text = record.get("passage"), record.get("text")
        if not isinstance(name, str) or not isinstance(text, str) or not text.strip():
            raise DataError("expected the keys 'passage' (an id) and 'text' (not empty).", file, line)
        number = corpus.numbers([name])[0]
        if number is None:
            raise DataError(f"the passage {name!r} is not in {corpus.source}.", file, line)
        yield " ".join(text.split()), number


def _tokenized(tokenizer: Any, texts: tuple[str, ...]) -> Iterator[np.ndarray]:
    for first in range(0, len(texts), _BATCH):
        batch = [f" {text}" for text in texts[first : first + _BATCH]]
        encoded = tokenizer(batch, add_special_tokens=False, split_special_tokens=True, verbose=False)
        for row in encoded["input_ids"]:
            yield np.array(row, dtype=np.int64)


def _refuse_markers(
    corpus: Corpus, places: dict[str, list[int]], markers: tuple[str, str], source: str
) -> None:
    for text, numbers in places.items():
        held = [marker for marker in markers if marker in text]
        if held:
            raise DataError(
                f"a key of the passage {corpus.ids(numbers[:1])[0]!r} holds the marker {held[0]!r}: choose "
                """others with --markers, as '["⟦", "⟧"]'.""",
                source,
            )


def _refuse_unwritable(
    corpus: Corpus, tokenizer: Any, places: dict[str, list[int]], rows: list[np.ndarray], source: str
) -> None:
    decoded = tokenizer.batch_decode(rows)
    for (text, numbers), row, written in zip(places.items(), rows, decoded, strict=True):
        unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in row
        if not len(row) or unknown or _letters(text) - _letters(written):
            raise DataError(
                f"the tokenizer cannot write a key of the passage {corpus.ids(numbers[:1])[0]!r}: "
                f"{text[:60]!r}. Take its unknown characters out of the corpus, or another model.",
                source,
            )


def _letters(text: str) -> set[str]:
    """The characters of a text, whatever their case and form, white space and punctuation left out."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return {character for character in plain if unicodedata.category(character)[0] in "LNS"}
