"""Which passages of a corpus name which.

A passage is named by its title, as whole words, with or without what stands in brackets, what follows a
comma; an article before it does not count. A passage without a title is named by the first words in capitals,
by a single word if no passage has it in small letters. A name of several words counts in any letter case, a
name of one word only in the case of the title. In scripts without spaces each character is a word
(:func:`~grls.data.words.plain_words`). Of names that overlap in a text, the first and longest counts: ``New
York City``, not ``New York``.

A name says little that many passages hold: with n such passages, its weight is n^(-0.15). Passages of one
title share the name; whoever searches says which of them is meant.

Texts of metadata fields may be further names, in the same way. The metadata field ``links`` of a passage
lists ids of passages that it links to, as by a hyperlink; to each of them it is a name that no other bears.
Ids that no passage has are left out, with a warning.

The table of a large corpus is stored in the cache of ``datasets``, by corpus, fields and version of the rule.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import regex
from ahocorasick_rs import AhoCorasick, MatchKind

from grls.data.corpus_table import BATCH, PassageTable, cache_folder, read_passages
from grls.data.types import Passage
from grls.data.words import plain_words
from grls.errors import DataError, GrlsError, Option
from grls.io.arguments import short_repr
from grls.io.files import atomic_folder, read_json
from grls.io.progress import Progress, counted
from grls.io.seal import changed, seal

log = logging.getLogger(__name__)

GIVEN = "links"
"""The metadata field with the ids of the passages that a passage links to."""
KEPT_BYTES = 8 * 2**20
"""The tables of smaller corpora are made anew, within a second or two."""

_RULE = 1
"""The version of the rule, part of the name under which a table is stored."""
_KEPT, _MANIFEST = 8, "links.json"
"""So many tables are stored: those that were made last."""
_BRACKETS = re.compile(r"\s*[(（\[［][^()（）\[\]［］]*[)）\]］]\s*")
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_WORDS = re.compile(r"\w+")
_PARTICLES = (
    "a|à|al|and|at|av|da|das|de|del|den|der|des|di|do|dos|du|e|el|en|et|for|in|la|le|les|of|on|the|to|und|van|"
    "von|y|zu"
)
_SUBJECT = regex.compile(
    rf"(?<!\w)\p{{Lu}}[\w'’.&-]*(?:(?:[^\S\n]+(?:{_PARTICLES}))*[^\S\n]+[\p{{Lu}}\p{{Nd}}][\w'’.&-]*)*"
)
"""Words that begin with capitals, or numbers, and particles between them."""
_BEGINNING = 200
"""Characters in which a text names what it is about."""
_LEAST = 4
"""Bytes of the shortest name: four Latin letters, two Chinese characters."""
_FALL = 0.15
"""How the weight of a name falls with the number of passages that hold it, by training questions."""

_ROWS = ("names", "forms", "bearers", "held", "given")
_COLUMNS = (*_ROWS, *(f"{name}_starts" for name in _ROWS), "counts", "given_counts")

Table = dict[str, npt.NDArray[Any]]


class LinkedCorpus(Protocol):
    """What is read of a corpus; :mod:`grls.data.corpus` imports this module."""

    table: PassageTable
    source: str

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Passage]: ...

    def passages(self, numbers: Sequence[int]) -> list[Passage]: ...

    def ids(self, numbers: Sequence[int]) -> list[str]: ...

    def numbers(self, ids: Sequence[str]) -> list[int | None]: ...

    def metadata(self) -> Iterator[dict[str, Any]]: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def metadata_fingerprint(self) -> str: ...


class Naming(NamedTuple):
    """A name in a text, or a link.

    Attributes:
        words: Its words, in lower case; of a link, those of the title that it leads to, or the id.
        passages: The numbers of the passages that bear it, ascending.
        weight: How much it tells, from 0 to 1.
    """

    words: str
    passages: npt.NDArray[np.int32]
    weight: float


class Links:
    """The names of the passages of a corpus, and the passages whose texts hold them (``table``:
    :func:`find_links`).
    """

    def __init__(self, corpus: LinkedCorpus, table: Table):
        self._corpus = corpus
        self._table = table
        self._names = range(len(table["counts"]))
        self._longest = int(np.diff(table["names_starts"]).max(initial=0))

    @classmethod
    def of_corpus(cls, corpus: LinkedCorpus, fields: Sequence[str] = ()) -> Links:
        """The links of a corpus; the table of a large one is cached.

        ``fields`` are the metadata fields whose texts are names, besides the title. Each must hold texts.
        """
        if corpus.table.data.nbytes < KEPT_BYTES:
            return cls(corpus, find_links(corpus, fields))
        rule = [_RULE, unicodedata.unidata_version, *fields]
        key = [corpus.fingerprint, corpus.metadata_fingerprint, *rule]
        folder = cache_folder() / "links" / hashlib.sha256(json.dumps(key).encode()).hexdigest()
        table = _kept_table(folder)
        if table is None:
            table = find_links(corpus, fields)
            _keep(table, folder)
        return cls(corpus, table)

    def __bool__(self) -> bool:
        """Whether any passage has a name, or a link."""
        return bool(self._names) or bool(len(self._table["given"]))

    @cached_property
    def share(self) -> float:
        """The share of passages that name others, or link to them, from 0 to 1; of some two thousand."""
        size = len(self._table["given_counts"])
        numbers = range(0, size, max(1, size // 2000))
        return sum(bool(self.of(number)) for number in numbers) / max(len(numbers), 1)

    def in_text(self, text: str) -> list[Naming]:
        flat, start, found = plain_words(text).encode() + b" ", 0, dict[int, None]()
        while start < len(flat):
            name = self._first(flat[start : start + self._longest])
            if name is not None:
                found[name] = None
            start = flat.index(b" ", start) + 1 if name is None else start + len(self._row("names", name))
        writing = _Writing(text)
        return [self._naming(name) for name in found if writing.holds(self._forms(name))]

    def of(self, number: int) -> list[Naming]:
        """The names in the text of a passage, but for its own, and its links."""
        held = map(self._naming, self._row("held", number).tolist())
        linked = [to for to in self._row("given", number).tolist() if to != number]
        named = [naming for naming in held if number not in naming.passages]
        for to, passage in zip(linked, self._corpus.passages(linked), strict=True):
            weight = int(self._table["given_counts"][to]) ** -_FALL
            words = plain_words(passage.title) or passage.id
            named.append(Naming(words, np.array([to], dtype=np.int32), weight))
        return named

    def names(self, number: int) -> list[str]:
        """In lower case."""
        places = np.flatnonzero(self._table["bearers"] == number)
        names = np.searchsorted(self._table["bearers_starts"], places, side="right") - 1
        return [self._naming(name).words for name in names.tolist()]

    def _naming(self, name: int) -> Naming:
        weight = max(int(self._table["counts"][name]), 1) ** -_FALL
        words = self._row("names", name)[:-1].tobytes().decode()
        return Naming(words, self._row("bearers", name), weight)

    def _forms(self, name: int) -> list[str]:
        return [form.decode() for form in self._row("forms", name).tobytes().split(b"\xff")[:-1]]

    def _row(self, column: str, number: int) -> npt.NDArray[Any]:
        start, end = self._table[f"{column}_starts"][number : number + 2]
        return self._table[column][start:end]

    def _first(self, text: bytes) -> int | None:
        """The longest name that a text begins with: a name that is one begins the last name up to it."""
        while text:
            number = bisect_right(self._names, text, key=lambda n: self._row("names", n).tobytes()) - 1
            if number < 0:
                return None
            name = self._row("names", number).tobytes()
            if text.startswith(name):
                return number
            same = next(n for n, (a, b) in enumerate(zip(name, text, strict=False)) if a != b)
            text = text[: text.rfind(b" ", 0, same) + 1]
        return None


def find_links(corpus: LinkedCorpus, fields: Sequence[str] = ()) -> Table:
    """The table of the links of a corpus: N names, P passages.

    Rows are of five kinds, each as values and the starts of the rows: ``names`` ``[N]`` (UTF-8 words, each
    with a space behind it, ascending), ``bearers`` ``[N]`` (numbers of passages), ``forms`` ``[N]`` (as
    titles write a name of one word, each with the byte 255 behind it), ``held`` ``[P]`` (numbers of
    names), ``given`` ``[P]`` (numbers of passages). And ``counts`` ``[N]`` and ``given_counts`` ``[P]``:
    how many passages hold a name, or link to a passage.
    """
    numbers: dict[str, int] = {}
    forms: dict[str, set[str]] = {}
    borne, bearers = array("i"), array("i")
    common: set[str] = set()
    if not all(passage.title for passage in corpus):
        common = {word for passage in corpus for word in _WORDS.findall(passage.text) if word.islower()}
    for number, (passage, further) in enumerate(zip(corpus, _further(corpus, fields), strict=True)):
        own = dict[str, None]()
        first = _names(passage.title or _subject(passage.text))
        if not passage.title:
            first = [name for name in first if plain_words(name) not in common]
        for name in chain(first, *map(_names, further)):
            flat = plain_words(name)
            if len(flat.replace(" ", "").encode()) >= _LEAST:
                own[flat] = None
                if " " not in flat:
                    forms.setdefault(flat, set()).add(name.strip())
        borne.extend(numbers.setdefault(flat, len(numbers)) for flat in own)
        bearers.extend(repeat(number, len(own)))
    names = sorted(numbers)
    ranks = np.empty(len(names), dtype=np.int32)
    ranks[[numbers[name] for name in names]] = np.arange(len(names))
    of_names = ranks[np.asarray(borne, dtype=np.int32)]
    del numbers, borne
    written: list[Collection[str]] = [forms.get(name, ()) for name in names]
    held, ends = array("i"), array("q", [0])
    finder = AhoCorasick([_spaced(name) for name in names], matchkind=MatchKind.LeftmostLongest)
    with Progress(len(corpus) if names else 0, "look for names in", "passages") as bar:
        for passage in corpus if names else ():
            matches = finder.find_matches_as_indexes(_spaced(plain_words(passage.text)))
            found = dict.fromkeys(name for name, *_ in matches)
            writing = _Writing(passage.text)
            held.extend(name for name in found if writing.holds(written[name]))
            ends.append(len(held))
            bar.update()
    del finder
    in_texts = np.asarray(held, dtype=np.int32)
    given, given_starts = _given(corpus)
    return {
        **_rows("names", [f"{name} ".encode() for name in names]),
        **_rows("forms", [b"".join(form.encode() + b"\xff" for form in sorted(own)) for own in written]),
        "bearers": np.asarray(bearers, dtype=np.int32)[np.argsort(of_names, kind="stable")],
        "bearers_starts": np.cumsum([0, *np.bincount(of_names, minlength=len(names))], dtype=np.int64),
        "held": in_texts,
        "held_starts": np.asarray(ends, dtype=np.int64) if names else np.zeros(len(corpus) + 1, np.int64),
        "counts": np.bincount(in_texts, minlength=len(names)).astype(np.int32),
        "given": given,
        "given_starts": given_starts,
        "given_counts": np.bincount(given, minlength=len(corpus)).astype(np.int32),
    }


def as_written(passage: Passage, words: str) -> str:
    """The words of a name as the title or the text of its passage writes them."""
    names = _names(passage.title or _subject(passage.text))
    return next((name for name in names if plain_words(name) == words), words)


def _names(title: str) -> list[str]:
    bare = _BRACKETS.sub(" ", title).strip()
    names = (_ARTICLE.sub("", name.strip()) for name in (title, bare, bare.partition(",")[0]))
    return list(dict.fromkeys(names))


def _subject(text: str) -> str:
    """The name that a text without a title begins with, if any."""
    found = _SUBJECT.search(text, 0, _BEGINNING)
    return found[0] if found else ""


class _Writing:
    """A text, for names that count only as titles write them."""

    def __init__(self, text: str):
        self._text = text

    @cached_property
    def _words(self) -> set[str]:
        return set(_WORDS.findall(self._text))

    def holds(self, forms: Collection[str]) -> bool:
        """A name without forms counts in any letter case."""
        if not forms or not self._words.isdisjoint(forms):
            return True
        return any(self._writes(form) for form in forms if not form.isalnum())

    def _writes(self, form: str) -> bool:
        """Whether it holds a form with signs, such as ``Oklahoma!``."""
        bounded = rf"(?<!\w){re.escape(form)}(?!\w)"
        return self._words.issuperset(_WORDS.findall(form)) and bool(re.search(bounded, self._text))


def _spaced(words: str) -> str:
    """Words with a space on either side of each, so that names match whole words."""
    return f" {words.replace(' ', '  ')} " if words else ""


def _rows(column: str, rows: Sequence[bytes]) -> Table:
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return {column: np.frombuffer(b"".join(rows), dtype=np.uint8), f"{column}_starts": starts}


def _further(corpus: LinkedCorpus, fields: Sequence[str]) -> Iterator[Sequence[str]]:
    if not fields:
        yield from repeat((), len(corpus))
        return
    lacking = dict.fromkeys(fields)
    for number, entry in enumerate(corpus.metadata()):
        texts: list[str] = []
        for field in fields:
            if (value := entry.get(field)) is not None:
                lacking.pop(field, None)
                texts += _listed([value] if isinstance(value, str) else value, corpus, number, field)
        yield texts
    if lacking:
        field = next(iter(lacking))
        raise DataError(
            f"no passage has the metadata field {field!r}: leave it out of {Option('hops.names')}.",
            corpus.source,
        )


def _given(corpus: LinkedCorpus) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The numbers of the passages that each passage links to, and the starts of the rows."""
    given, ends, lost = array("i"), array("q", [0]), list[tuple[int, Any]]()
    metadata = corpus.metadata()
    while batch := list(islice(metadata, BATCH)):
        first, rows = len(ends) - 1, list[list[str]]()
        for number, entry in enumerate(batch, first):
            value = entry.get(GIVEN) or []
            texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
            rows.append(list(dict.fromkeys(value)) if texts else [])
            lost += [] if texts else [(number, value)]
        numbers = iter(corpus.numbers([*chain.from_iterable(rows)]))
        for number, row in enumerate(rows, first):
            known = [*zip(row, islice(numbers, len(row)), strict=True)]
            given.extend(to for _, to in known if to is not None)
            lost += [(number, name) for name, to in known if to is None]
            ends.append(len(given))
    if lost:
        number, value = lost[0]
        line = _line(corpus, number)
        log.warning(
            f"metadata.{GIVEN} of {corpus.source}: {counted(len(lost), 'link')} left out, which lead to no "
            f"passage, such as {short_repr(value)} of passage {corpus.ids([number])[0]!r}"
            f"{'' if line is None else f' (line {line})'}; a link is the id of a passage."
        )
    return np.asarray(given, dtype=np.int32), np.asarray(ends, dtype=np.int64)


def _listed(value: Any, corpus: LinkedCorpus, number: int, field: str) -> list[str]:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    raise DataError(
        f"passage {corpus.ids([number])[0]!r}: expected metadata.{field} to be a text or a list of texts, "
        f"got {short_repr(value)}: correct it, or leave it out of {Option('hops.names')}.",
        corpus.source,
        _line(corpus, number),
    )


def _line(corpus: LinkedCorpus, number: int) -> int | None:
    (name,) = corpus.ids([number])
    file = Path(corpus.source)
    lines = read_passages(file) if file.is_file() else ()
    return next((line for line, record in lines if record["_id"] == name), None)


def _kept_table(folder: Path) -> Table | None:
    """The table in a folder, mapped into memory; None: there is none, or it is damaged."""
    try:
        manifest = read_json(folder / _MANIFEST)
        if manifest["table"] != folder.name or changed(folder / _MANIFEST, manifest):
            return None
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in _COLUMNS}
    except (DataError, LookupError, OSError, TypeError, ValueError):
        return None


def _keep(table: Table, folder: Path) -> None:
    """Store a table, where the folder can be written, and delete the oldest ones."""
    with suppress(GrlsError, OSError):
        with atomic_folder(folder, "") as new:
            for name, values in table.items():
                np.save(new / f"{name}.npy", values, allow_pickle=False)
            seal(new / _MANIFEST, {"table": folder.name})
        made = sorted(folder.parent.glob("[!.]*"), key=lambda other: other.stat().st_mtime)
        for old in made[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
