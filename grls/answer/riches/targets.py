"""Targets for the fine-tuning of a model that answers with quotes.

A target has a line for each gold passage, with words to look for and the quoted key, then the answer::

    white: « if someone is cold then they are white . »
    answer: proved

It is composed of token ids, not tokenized as one string: free text as the tokenizer writes it, then the
tokens that the index holds for the key, then the closing marker as the decoder writes it. So
:mod:`grls.decode.interleave.search` can write every target. Nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from grls.answer.prompts import ANSWER
from grls.answer.riches.keys import Keys
from grls.answer.riches.options import Thoughts
from grls.data.codec import foreign_ids
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import Analyzer
from grls.decode.interleave.markers import TextMarkers
from grls.errors import DataError

_MOST = 6
"""Most words of a thought."""
_REMEMBERED = 100_000
"""Most free texts whose tokens are cached."""


class QuotedTarget(NamedTuple):
    """The target of a query: all token ids with the end token, and the numbers of the quoted keys.

    ``spans``: for each quote the position of its first token, and the position after its last one, where
    the closing marker begins.
    """

    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    keys: tuple[int, ...]


@dataclass(eq=False, repr=False)
class Targets:
    """Writes targets.

    Args:
        keys: The keys, made with this tokenizer and with the markers to write.
        thoughts: The words before a quote. ``shared``: the content words of the key that occur in the
            question or in a key quoted before, because a model can know these before it finds the passage;
            ``title``: the title of the passage; ``none``: no words. A quote without words begins its line.
        answer: The answer for queries without answers; None leaves the last line out for them.
    """

    tokenizer: Any
    corpus: Corpus
    keys: Keys
    thoughts: Thoughts = "shared"
    answer: str | None = None

    def __post_init__(self) -> None:
        self.markers = TextMarkers(self.tokenizer, *self.keys.origin.markers)
        self._analyzer = Analyzer.guessed(self.corpus)
        self._barred = frozenset(self.markers.barred.tolist())
        self._written: dict[str, list[int]] = {}
        self._of_passage: dict[int, list[int]] = {}
        for key, numbers in enumerate(self.keys.passages):
            for number in numbers:
                self._of_passage.setdefault(number, []).append(key)

    def write(self, query: Query, passages: Sequence[str]) -> QuotedTarget:
        """The target of a query, quoting a key of each of its passages, in this order.

        Of several keys of a passage, the one that shares most words with question and answers is quoted.
        A key of several passages is quoted once.
        """
        chosen = self._chosen(query, passages)
        known, opening = self._words(query.text), self.keys.origin.markers[0]
        texts = []  # the free texts before each quote, and behind the last one
        for key, title in chosen.items():
            thought = title
            if self.thoughts == "shared":  # in the spelling of the key, each word once
                content = self._analyzer.content(self.keys.texts[key])
                thought = " ".join([w for word, w in content.items() if word in known][:_MOST])
                known |= set(content)
            texts.append(f"{' '.join(thought.split())}: " * bool(thought.strip()) + opening)
        answer = query.answers[0] if query.answers else self.answer
        if answer is not None:
            texts.append(f"{ANSWER} {' '.join(answer.split())}")
        free = self._free(query, [texts[0], *(f"\n{text}" for text in texts[1:])])
        tokens: list[int] = []
        spans = []
        for key, before in zip(chosen, free, strict=False):
            tokens += before
            first = len(tokens)
            tokens += self.keys.index.tokens(key).tolist()
            spans.append((first, len(tokens)))
            tokens += self.markers.closing
        for last in free[len(chosen) :]:
            tokens += last
        return QuotedTarget((*tokens, self.tokenizer.eos_token_id), tuple(spans), tuple(chosen))

    def _chosen(self, query: Query, passages: Sequence[str]) -> dict[int, str]:
        words = self._words(" ".join((query.text, *query.answers)))
        chosen: dict[int, str] = {}
        for passage, number in zip(passages, self.corpus.numbers(list(passages)), strict=True):
            if number is None:
                raise DataError(
                    f"gold passage {passage!r} of query {query.id!r} is not in {self.corpus.source}; add the "
                    "passage or remove the reference."
                )
            keys = self._of_passage.get(number)
            if keys is None:
                raise DataError(
                    f"gold passage {passage!r} of query {query.id!r} has no key of this kind (its text or "
                    "title is empty): choose another kind of key, or remove it from the gold passages."
                )
            best = max(keys, key=lambda key: len(words & self._words(self.keys.texts[key])))
            title = self.corpus.passages([number])[0].title if self.thoughts == "title" else ""
            chosen.setdefault(best, title)
        return chosen

    def _free(self, query: Query, texts: list[str]) -> list[list[int]]:
        new = [text for text in dict.fromkeys(texts) if text not in self._written]
        if len(self._written) + len(new) > _REMEMBERED:
            self._written.clear()
            new = list(dict.fromkeys(texts))
        if new:
            for text, tokens in zip(new, foreign_ids(self.tokenizer, new), strict=True):
                # A text before a quote ends with its only opening marker.
                opened = [n + 1 for n in range(len(tokens)) if self.markers.opens(tokens[: n + 1])]
                expected = [len(tokens)] if text.endswith(self.keys.origin.markers[0]) else []
                if opened != expected or self._barred.intersection(tokens):
                    raise DataError(
                        f"query {query.id!r}: the text {text.strip()!r} holds a marker; choose other markers."
                    )
                if self.tokenizer.unk_token_id is not None and self.tokenizer.unk_token_id in tokens:
                    raise DataError(
                        f"query {query.id!r}: the tokenizer cannot write {text!r}. Take its unknown "
                        "characters out (ScratchT5: name them in `texts`), or take another model."
                    )
                self._written[text] = tokens
        return [self._written[text] for text in texts]

    def _words(self, text: str) -> set[str]:
        return set(self._analyzer.content(text))
