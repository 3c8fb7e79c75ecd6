"""Spans as identifiers of passages: a model may write a passage from any of its words on.

Legend: N passages, V spans.

A generator that writes a passage from its beginning must guess the first words, which is hard for a passage
that was never an answer in training. With spans it may begin at any word, for example at a name in the
question. A span is a few words of title and text; the constraint index is over spans instead of passages.
Substrings as identifiers: Bevilacqua et al. 2022 (arXiv 2204.10628). Several spans of a passage: Li et al.
2023 (arXiv 2305.16675). Score of a passage from its spans: :mod:`grls.retrieve.generative.span_scores`.

Spans are numbered in the order of their passages, and within a passage in the order of its words. DONE comes
last. Spans are not stored: they follow from the corpus and the number of words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import pieces
from grls.io.files import read_count

SPANS = "spans.json"
"""The file in the folder of a trained model that names the spans of its training."""

_BATCH = 10_000

Ints = npt.NDArray[np.int64]


class Spans:
    """The spans, of so many ``words``, of a corpus of N passages.

    A span begins at every word that holds a letter or a digit. It ends after ``words`` words or with its
    passage. A passage without such a word is one span. In scripts without spaces between words
    (:mod:`grls.data.words`), each character is a word.
    """

    def __init__(self, corpus: Corpus, words: int = 8):
        self.corpus = corpus
        self.words = words
        self.source = corpus.source
        words_of = map(self.pieces, corpus)  # a span begins at each that holds a letter or a digit
        starts = [[n for n, word in enumerate(w) if any(map(str.isalnum, word))] or [0] for w in words_of]
        self.starts: Ints = np.array([start for passage in starts for start in passage], dtype=np.int64)
        self.offsets: Ints = np.concatenate(([0], np.cumsum([len(passage) for passage in starts])))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def owners(self) -> Ints:
        """``[V + 1]`` the number of the passage of every span, then N, the number of DONE."""
        return np.repeat(np.arange(len(self.offsets)), [*np.diff(self.offsets), 1])

    def of(self, passages: Sequence[int] | Ints) -> Ints:
        """The numbers of the spans of passages, in the order of the passages; N stands for DONE."""
        numbers = np.asarray(passages, dtype=np.int64)
        first = self.offsets[numbers]
        counts = np.append(self.offsets, len(self) + 1)[numbers + 1] - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        spans: Ints = np.repeat(first, counts) + within
        return spans

    def passages(self, spans: Sequence[int]) -> list[Passage]:
        """Spans as passages without a title."""
        owners = self.owners[np.asarray(spans, dtype=np.int64)].tolist()
        numbers = sorted(set(owners))
        texts = zip(numbers, self.corpus.passages(numbers), strict=True)
        known = {number: self.pieces(passage) for number, passage in texts}
        return [self._span(span, known[owner]) for span, owner in zip(spans, owners, strict=True)]

    def batches(self, size: int = _BATCH) -> Iterator[list[Passage]]:
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

    def extended(self, added: Spans, corpus: Corpus) -> Spans:
        """The spans of a corpus that holds the passages of this one, followed by those of ``added``."""
        offsets = np.concatenate((self.offsets, self.offsets[-1] + added.offsets[1:]))
        return self._over(corpus, np.concatenate((self.starts, added.starts)), offsets)

    def select(self, numbers: Sequence[int] | Ints, corpus: Corpus) -> Spans:
        counts = np.diff(self.offsets)[np.asarray(numbers, dtype=np.int64)]
        return self._over(corpus, self.starts[self.of(numbers)], np.concatenate(([0], np.cumsum(counts))))

    def _over(self, corpus: Corpus, starts: Ints, offsets: Ints) -> Spans:
        spans = copy(self)
        spans.__dict__.pop("owners", None)
        spans.corpus, spans.source = corpus, corpus.source
        spans.starts, spans.offsets = starts, offsets
        return spans

    def numbers(self, ids: Sequence[str]) -> list[int | None]:
        return self.corpus.numbers(ids)

    def _span(self, span: int, words: Sequence[str]) -> Passage:
        start = int(self.starts[span])
        return Passage(str(span), "".join(words[start : start + self.words]).strip())

    def pieces(self, passage: Passage) -> list[str]:
        """The words of title and text, each with a space before it unless it touches the word before."""
        return pieces(f"{passage.title} {passage.text}")

    @property
    def record(self) -> dict[str, Any]:
        return {"words": self.words}


def read_spans(value: Any, file: Path) -> int | None:
    """The words of a span, of a JSON value ``{"words": 8}``; None for null."""
    return read_count(value, "words", "the length of spans", 8, file)
