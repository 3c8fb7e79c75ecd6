"""Which passages of a corpus name which.

A passage is named by its title, as whole words, with or without what stands in brackets, what follows a
comma, and an article before it. A title of several words is a name in any letter case, a title of one word
only as it is written. In scripts without spaces each character is a word
(:func:`~grls.data.words.plain_words`). Of names that overlap in a text, the first and longest counts: ``New
York City``, not ``New York``.

A name says little that many passages hold: with n such passages, its weight is n^(-0.15). Passages of one
title share the name; whoever searches says which of them is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ahocorasick_rs import AhoCorasick, MatchKind

from grls.data.types import Passage
from grls.data.words import plain_words

_BRACKETS = re.compile(r"\s*[(（\[［][^()（）\[\]［］]*[)）\]］]\s*")
_ARTICLE = re.compile(r"(?:the|an?)\s+", re.IGNORECASE)
_LEAST = 4
"""Bytes of the shortest name: four Latin letters, two Chinese characters."""
_FALL = 0.15
"""How the weight of a name falls with the number of passages that hold it, by training questions."""


class Naming(NamedTuple):
    """A name in a text.

    Attributes:
        words: Its words, in lower case.
        passages: The numbers of the passages that bear it, ascending.
        weight: How much it tells, from 0 to 1.
    """

    words: str
    passages: npt.NDArray[np.int32]
    weight: float


class Links:
    """The names of the passages of a corpus, and the passages whose texts hold them.

    Args:
        passages: The passages, read twice.
    """

    def __init__(self, passages: Iterable[Passage]):
        bearers: dict[str, list[int]] = {}
        self._written: dict[str, set[str]] = {}  # a name of one word -> as titles write it
        size = 0
        for number, passage in enumerate(passages):
            for name in _names(passage.title):
                flat = _flat(name)
                if len(flat.replace(" ", "").encode()) >= _LEAST:
                    if (known := bearers.setdefault(flat, [])) and known[-1] == number:
                        continue
                    known.append(number)
                    if len(flat.split()) == 1:
                        self._written.setdefault(flat, set()).add(name.strip())
            size = number + 1
        self._names = list(bearers)
        self._bearers = [np.array(numbers, dtype=np.int32) for numbers in bearers.values()]
        self._finder = AhoCorasick(self._names, matchkind=MatchKind.LeftmostLongest)
        held = [self._find(passage.text) for passage in passages] if bearers else [[]] * size
        self._starts = np.cumsum([0, *map(len, held)], dtype=np.int64)
        self._held = np.fromiter(chain.from_iterable(held), np.int32, int(self._starts[-1]))
        counts = np.maximum(np.bincount(self._held, minlength=len(self._names)), 1)
        self._weights = counts.astype(np.float64) ** -_FALL

    def __bool__(self) -> bool:
        """Whether any passage has a name."""
        return bool(self._names)

    @cached_property
    def share(self) -> float:
        """The share of passages whose texts name others, from 0 to 1."""
        size = len(self._starts) - 1
        return sum(bool(self.of(number)) for number in range(size)) / max(size, 1)

    def in_text(self, text: str) -> list[Naming]:
        """The names in a text, each once."""
        return [self._naming(name) for name in self._find(text)]

    def of(self, number: int) -> list[Naming]:
        """The names in the text of a passage, but for its own."""
        held = map(self._naming, self._held[self._starts[number] : self._starts[number + 1]].tolist())
        return [naming for naming in held if number not in naming.passages]

    def _naming(self, name: int) -> Naming:
        words = self._names[name].strip().replace("  ", " ")
        return Naming(words, self._bearers[name], float(self._weights[name]))

    def _find(self, text: str) -> list[int]:
        names = dict.fromkeys(name for name, *_ in self._finder.find_matches_as_indexes(_flat(text)))
        return [name for name in names if self._is_written(self._names[name], text)]

    def _is_written(self, name: str, text: str) -> bool:
        """Whether a text writes a name of one word as a title does."""
        forms = self._written.get(name)
        return forms is None or any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text) for form in forms)


def _names(title: str) -> list[str]:
    """The names of a passage with this title."""
    bare = _BRACKETS.sub(" ", title)
    names = [title, bare]
    names += [name[match.end() :] for name in names if (match := _ARTICLE.match(name))]
    names += [name.partition(",")[0] for name in names]
    return list(dict.fromkeys(name.strip() for name in names))


def _flat(text: str) -> str:
    """The words of a text, with a space on either side of each, so that names match whole words."""
    words = plain_words(text)
    return f" {words.replace(' ', '  ')} " if words else ""
