"""Spans of passages as their identifiers: a passage may be written from any of its words on.

Legend: N passages, V spans.

A generator that writes a passage from its beginning has to guess its first words, and for a passage that it
never saw as an answer it can only guess. With spans it may begin at any word: at the name that the question
holds, say. A span is a span of a few words, title and text taken together, and the constraint index is over
spans instead of passages, each the name of the passage that it stands in. Substrings as identifiers are those
of Bevilacqua et al. 2022 (arXiv 2204.10628), several spans of a passage those of Li et al. 2023 (arXiv
2305.16675). How the spans of a passage that were found make its score is
:mod:`grls.retrieve.generative.span_scores`' affair.

Spans are numbered as their passages are, those of one passage side by side in the order of its words; DONE
comes after the last one. Nothing of them is stored: they follow from the corpus and their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import pieces
from grls.errors import ConfigError, DataError
from grls.io.files import read_count

VIEWS = "views.json"
"""The file beside a trained model that says what spans it learned to write."""

_BATCH = 10_000

Ints = npt.NDArray[np.int64]
By = Literal["script", "spaces"]


class Spans:
    """The spans of a corpus.

    A span begins at every word that holds a letter or a digit, and ends ``words`` words later or with its
    passage. A passage without such a word has one span, all of it. Where no white space parts words
    (:mod:`grls.data.words`), each character is one.

    Args:
        corpus: N passages.
        words: Words of a span.
        by: What parts words: ``script``, or ``spaces`` alone, as it was at first.

    Raises:
        ConfigError: ``words`` is below 1.
    """

    def __init__(self, corpus: Corpus, words: int = 8, by: By = "script"):
        if words < 1:
            raise ConfigError(f"spans must have at least 1 word, got {words}.")
        self.corpus = corpus
        self.words = words
        self.by: By = by
        self.source = corpus.source
        starts = [word_starts(self.pieces(passage)) for passage in corpus]
        self.starts: Ints = np.array([start for some in starts for start in some], dtype=np.int64)
        self.offsets: Ints = np.concatenate(([0], np.cumsum([len(some) for some in starts])))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def owners(self) -> Ints:
        """``[V + 1]`` the passage of every span, and N, the number of DONE, of DONE."""
        return np.repeat(np.arange(len(self.offsets)), [*np.diff(self.offsets), 1])

    def of(self, passages: Sequence[int] | Ints) -> Ints:
        """The spans of some passages, in their order; N stands for DONE."""
        given = np.asarray(passages, dtype=np.int64)
        first = self.offsets[given]
        counts = np.append(self.offsets, len(self) + 1)[given + 1] - first
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found: Ints = np.repeat(first, counts) + places
        return found

    def passages(self, spans: Sequence[int]) -> list[Passage]:
        """Spans as passages without a title."""
        owners = self.owners[np.asarray(spans, dtype=np.int64)].tolist()
        known = {passage: self.pieces(text) for passage, text in self._texts(sorted(set(owners)))}
        return [self._span(span, known[owner]) for span, owner in zip(spans, owners, strict=True)]

    def batches(self, size: int = _BATCH) -> Iterator[list[Passage]]:
        """All spans in order, ``size`` at a time."""
        batch: list[Passage] = []
        for number, passage in enumerate(self.corpus):
            words = self.pieces(passage)
            batch += [
                self._span(span, words) for span in range(self.offsets[number], self.offsets[number + 1])
            ]
            while len(batch) >= size:
                yield batch[:size]
                batch = batch[size:]
        if batch:
            yield batch

    def numbers(self, ids: Sequence[str]) -> list[int | None]:
        """The numbers of these passages in the corpus; see :meth:`grls.data.corpus.Corpus.numbers`."""
        return self.corpus.numbers(ids)

    def _texts(self, numbers: Sequence[int]) -> Iterator[tuple[int, Passage]]:
        return zip(numbers, self.corpus.passages(numbers), strict=True)

    def _span(self, span: int, words: Sequence[str]) -> Passage:
        start = int(self.starts[span])
        return Passage(str(span), "".join(words[start : start + self.words]).strip())

    def pieces(self, passage: Passage) -> list[str]:
        """The words of title and text, each with a space before it where it does not touch the one before."""
        text = f"{passage.title} {passage.text}"
        return pieces(text) if self.by == "script" else [f" {word}" for word in text.split()]

    @property
    def record(self) -> dict[str, Any]:
        """What files say of them; :func:`read_spans` reads it."""
        return {"words": self.words, "by": self.by}


def read_spans(found: Any, file: Path) -> tuple[int, By] | None:
    """The words of the spans that a file speaks of, and what parts words; None where it speaks of none.

    Args:
        found: What stands there, ``{"words": 8, "by": "script"}``; without ``by``: spaces.
        file: For the error text.

    Raises:
        DataError: It says something else.
    """
    words = read_count(found, "words", "the length of spans", 8, file)
    if words is None:
        return None
    by = found.get("by", "spaces")
    if by not in get_args(By):
        raise DataError(
            f"expected what parts the words of spans ({', '.join(get_args(By))}), got {by!r}.", file
        )
    return words, by


def word_starts(words: Sequence[str]) -> list[int]:
    """Which of the words of a passage spans begin at."""
    return [n for n, word in enumerate(words) if any(map(str.isalnum, word))] or [0]
