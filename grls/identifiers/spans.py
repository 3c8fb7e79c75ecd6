"""Spans as identifiers of passages: a model may write a passage from any of its words on.

A generator that writes a passage from its beginning must guess the first words, which is hard for a passage
that was never an answer in training. With spans it may begin at any word, for example at a name in the
question. Substrings as identifiers: Bevilacqua et al. 2022 (SEAL, arXiv 2204.10628).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifier, IdentifierKind
from grls.data.words import pieces
from grls.io.arguments import Count, options


@options("options")
class Spans(IdentifierKind):
    """The spans of a passage, in the order of its words.

    A span begins at every word that holds a letter or a digit. It ends after ``words`` words or with its
    passage. A passage without such a word is one span. In scripts without spaces between words
    (:mod:`grls.data.words`), each character is a word.

    Args:
        words: Number of words of a span.
    """

    words: Count = 8

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        for passage in corpus:
            words = pieces(f"{passage.title} {passage.text}")  # with a space before them, or none
            starts = [n for n, word in enumerate(words) if any(map(str.isalnum, word))] or [0]
            yield ["".join(words[start : start + self.words]).strip() for start in starts]
