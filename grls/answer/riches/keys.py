"""The keys of a corpus: the texts that a model may quote, and the passages that they stand for.

Kinds of key (arXiv 2407.00361, "retrieval keys"): the whole paragraph with or without its title, its
sentences, its title, or propositions (:mod:`grls.answer.riches.propositions`): short statements of one fact
each, read from a file.

Legend: N keys, B bytes of their texts, M passages of all keys together.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from grls.answer.riches.options import USUAL_KEYS, KeyKind, KeyOptions
from grls.data.codec import controls, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.spelling import encoded_texts
from grls.decode.interleave.markers import check_markers
from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError, Option
from grls.index.build import index_sequences
from grls.index.files import REBUILD, load_arrays, read_manifest
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.rows import MAX_LENGTH, Array, Ints
from grls.index.substring import SubstringIndex
from grls.io.files import atomic_folder, refuse_unusable, sha256
from grls.io.jsonl import read_jsonl
from grls.io.seal import seal

log = logging.getLogger(__name__)


FORMAT = 2
KEYS_MANIFEST = "keys.json"
_INDEX = "index"
_ARRAYS = ("texts", "text_offsets", "passages", "passage_offsets")
_Entry = TypeVar("_Entry")
_REMEDY = "name another folder, or remove this folder and run the command again"
_BATCH = 1000
_LINES = 10_000


class KeyOrigin(NamedTuple):
    """The data and options that keys were made from: two sets of keys of one origin are the same.

    Attributes:
        kind: The kind of key, see :data:`grls.answer.riches.options.KeyKind`.
        anywhere: Whether a quote may begin anywhere in a key.
        markers: The texts that open and close a quote; no key holds them.
        tokenizer: Fingerprint of the tokenizer; ``corpus``: of the corpus.
        source: Fingerprint of the file of propositions.
    """

    kind: str
    anywhere: bool
    markers: tuple[str, str]
    tokenizer: str
    corpus: str
    source: str


class _Stored(Sequence[_Entry], Generic[_Entry]):
    """N entries that stand one after another in an array.

    ``parts``: ``[B]`` or ``[M]``; ``offsets``: ``[N + 1]`` start of each entry, and the end. ``read``
    makes an entry of its part.
    """

    def __init__(self, parts: Array, offsets: Array, read: Callable[[Array], _Entry]):
        self._parts = parts
        self._offsets = offsets
        self._read = read

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> _Entry:  # type: ignore[override]
        number = range(len(self))[index]
        return self._read(self._parts[int(self._offsets[number]) : int(self._offsets[number + 1])])


def _joined(rows: Iterable[Array]) -> tuple[Array, Ints]:
    """Rows one after another, and their offsets."""
    arrays = list(rows)
    return np.concatenate(arrays), np.concatenate(
        ([0], np.cumsum([len(row) for row in arrays], dtype=np.int64))
    )


@contextmanager
def _remedied() -> Iterator[None]:
    """Errors of a damaged index name the remedy of keys."""
    try:
        yield
    except (IndexFormatError, DataError) as error:
        problem = str(error).removesuffix(REBUILD).removesuffix("build it again.").rstrip("; ")
        problem = problem.removesuffix(", or")
        raise IndexFormatError(f"{problem}; {_REMEDY}.") from None


@dataclass(frozen=True)
class Keys:
    """N keys and their index, in memory or in a folder.

    The folder has ``keys.json`` (the manifest: format, checksums, origin), four ``.npy`` files with the
    texts and the passages, and the index in ``index/``. All of it is memory-mapped, and nothing is
    tokenized again. ``passages``: numbers of the passages that each key stands for, ascending.
    """

    texts: Sequence[str]
    passages: Sequence[tuple[int, ...]]
    index: KeyIndex
    origin: KeyOrigin

    def save(self, folder: str | Path) -> None:
        with atomic_folder(folder, KEYS_MANIFEST) as new:
            octets, starts = _joined(np.frombuffer(text.encode(), np.uint8) for text in self.texts)
            numbers, offsets = _joined(np.array(numbers, dtype=np.int64) for numbers in self.passages)
            for name, array in zip(_ARRAYS, (octets, starts, numbers, offsets), strict=True):
                np.save(new / f"{name}.npy", array, allow_pickle=False)
            self.index.save(new / _INDEX, self.origin.tokenizer, self.origin.corpus)
            manifest = {"format": FORMAT, "keys": len(self.texts), **self.origin._asdict()}
            seal(new / KEYS_MANIFEST, manifest)

    @classmethod
    @_remedied()
    def load(cls, folder: str | Path, origin: KeyOrigin, verify: bool | None = None) -> Self:
        """Open keys of this origin, memory-mapped; ``verify`` compares checksums as ``load_arrays`` does."""
        path = Path(folder)
        file = path / KEYS_MANIFEST
        kind = SubstringIndex if origin.anywhere else PrefixKeys
        manifest = read_manifest(file, FORMAT, {}, None, None)
        stored = {name: manifest.get(name) for name in KeyOrigin._fields}
        for name, expected in origin._asdict().items():
            if stored[name] == (list(expected) if isinstance(expected, tuple) else expected):
                continue
            difference = f"with {name} {stored[name]!r}, expected {expected!r}"
            if name == "source":
                difference = "from other propositions than those given"
            elif name in ("tokenizer", "corpus"):
                difference = f"with another {name} than this one"
            raise MismatchError(f"{path}: these keys were made {difference}; {_REMEDY}.")
        arrays = load_arrays(file, manifest, _ARRAYS, verify)
        index: KeyIndex = kind.load(path / _INDEX, origin.tokenizer, origin.corpus, verify)
        texts: _Stored[str] = _Stored(
            arrays["texts"], arrays["text_offsets"], lambda part: part.tobytes().decode()
        )
        passages: _Stored[tuple[int, ...]] = _Stored(
            arrays["passages"], arrays["passage_offsets"], lambda part: tuple(part.tolist())
        )
        if not len(index) == len(texts) == len(passages) == manifest.get("keys"):
            raise IndexFormatError(f"{path}: the files do not hold the same number of keys; {REBUILD}")
        return cls(texts, passages, index, origin)


def letters(text: str) -> str:
    """The characters of a text without case and form, white space and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in plain if unicodedata.category(character)[0] in "LNS")


def build_keys(
    corpus: Corpus,
    tokenizer: Any,
    options: KeyOptions = USUAL_KEYS,
    markers: tuple[str, str] = ("«", "»"),
) -> Keys:
    """The keys of a corpus with their index: opened in their folder, or made, and stored there.

    A key is written with a space before it, so that a word has the same tokens within and at the start of a
    key. No key may hold one of ``markers``, which open and close a quote.
    """
    origin = _origin(corpus, tokenizer, options, markers)
    kind, propositions, folder = options.kind, options.propositions, options.folder
    if folder is not None and (Path(folder) / KEYS_MANIFEST).exists():
        return Keys.load(folder, origin)
    if folder is not None:
        refuse_unusable(folder, KEYS_MANIFEST)
    source = corpus.source if propositions is None else propositions
    passages_of: dict[str, list[int]] = {}
    for text, number in key_texts(corpus, kind, propositions):
        numbers = passages_of.setdefault(text, [])
        if number not in numbers[-1:]:  # a file of propositions may return to a passage: see `set` below
            numbers.append(number)
    if not passages_of:
        raise DataError(f"there is no {kind} to quote: every one is empty.", source)
    texts = tuple(passages_of)
    for text, numbers in passages_of.items():
        if held := [marker for marker in markers if marker in text]:
            raise DataError(
                f"a key of the passage {corpus.ids(numbers[:1])[0]!r} holds the marker {held[0]!r}: choose "
                """other markers, as '["⟦", "⟧"]'.""",
                source,
            )
    rows = [
        np.array(row, dtype=np.int64)
        for first in range(0, len(texts), _BATCH)
        for row in encoded_texts(tokenizer, [f" {text}" for text in texts[first : first + _BATCH]])[
            "input_ids"
        ]
    ]
    barred = {*controls(tokenizer), tokenizer.unk_token_id}
    decoded = tokenizer.batch_decode(rows)
    for (text, numbers), row, written in zip(passages_of.items(), rows, decoded, strict=True):
        unknown = not barred.isdisjoint(row.tolist())
        if not len(row) or unknown or set(letters(text)) - set(letters(written)):
            raise DataError(
                f"the tokenizer cannot write a key of the passage {corpus.ids(numbers[:1])[0]!r}: "
                f"{text[:60]!r}. Take its unknown characters out of the corpus, or another model.",
                source,
            )
    for (text, numbers), row in zip(passages_of.items(), rows, strict=True):
        if not options.anywhere and len(row) >= MAX_LENGTH:  # the end token is one of them
            raise DataError(
                f"a key of the passage {corpus.ids(numbers[:1])[0]!r} has {len(row):,} tokens "
                f"({text[:60]!r}…); at most {MAX_LENGTH - 1:,} fit. Split the passage into shorter ones, or "
                "take keys of another kind.",
                source,
            )
    end = tokenizer.eos_token_id
    index: KeyIndex = (
        SubstringIndex.build(rows) if options.anywhere
        else PrefixKeys(index_sequences([np.append(row, end) for row in rows], end))
    )  # fmt: skip
    passages = tuple(tuple(sorted(set(numbers))) for numbers in passages_of.values())
    keys = Keys(texts, passages, index, origin)
    if folder is not None:
        keys.save(folder)
    return keys


def _origin(corpus: Corpus, tokenizer: Any, options: KeyOptions, markers: tuple[str, str]) -> KeyOrigin:
    kind, propositions = options.kind, options.propositions
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
    fingerprint = tokenizer_fingerprint(tokenizer)
    pair = markers[0], markers[1]
    return KeyOrigin(kind, options.anywhere, pair, fingerprint, corpus.fingerprint, source)


def key_texts(
    corpus: Corpus, kind: KeyKind, propositions: str | Path | None = None
) -> Iterator[tuple[str, int]]:
    """The text of each key with the number of its passage; a text may come again, of other passages."""
    if propositions is not None:
        yield from _propositions(corpus, Path(propositions))
        return
    for number, passage in enumerate(corpus):
        text = passage.titled if kind == "titled" else passage.text
        texts = [passage.title] if kind == "title" else [text]
        for text in sentences(passage.text) if kind == "sentence" else texts:
            if text.strip():
                yield " ".join(text.split()), number


def _propositions(corpus: Corpus, file: Path) -> Iterator[tuple[str, int]]:
    lines = iter(read_jsonl(file))
    seen: set[int] = set()
    while True:
        entries: list[tuple[int, str, str | None]] = []
        for line, record in islice(lines, _LINES):
            name, text = record.get("passage"), record.get("text", "")
            if not isinstance(name, str) or not (text is None or (isinstance(text, str) and text.strip())):
                raise DataError(
                    "expected the fields 'passage' (an id) and 'text' (null, or not empty).", file, line
                )
            entries.append((line, name, text))
        if not entries:
            break
        # One look-up for the batch: every look-up hashes all ids of the corpus.
        numbers = corpus.numbers([name for _, name, _ in entries])
        for (line, name, text), number in zip(entries, numbers, strict=True):
            if number is None:
                raise DataError(f"the passage {name!r} is not in {corpus.source}.", file, line)
            seen.add(number)
            if text is not None:
                yield " ".join(text.split()), number
    if len(seen) < len(corpus):
        log.warning(
            "%s: %d of %d passages have no line, so nothing can quote them.",
            file, len(corpus) - len(seen), len(corpus),
        )  # fmt: skip
