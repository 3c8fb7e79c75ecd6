"""What a model that answers with quotes should have written: the targets of its fine-tuning.

For each gold passage a line with what to look for and the quoted key, then the answer::

    white: « if someone is cold then they are white . »
    answer: proved

Composed from token ids, never from a string: free text as the tokenizer writes it, then the very tokens that
the index holds for the key, then the closing marker as the decoder writes it. So a target is an output that
:mod:`grls.decode.interleave.search` could have written, which a tokenizer run over the whole line would not
assure. It knows nothing of models, and draws nothing at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from grls.answer.riches.keys import Keys
from grls.answer.riches.prompts import ANSWER
from grls.data.codec import foreign_ids
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import Analyzer
from grls.decode.interleave.markers import TextMarkers
from grls.errors import ConfigError, DataError

Thoughts = Literal["shared", "title", "none"]

_MOST = 6
"""Words of a thought, at most."""
_REMEMBERED = 100_000
"""Free texts whose tokens are remembered, at most."""


class QuotedTarget(NamedTuple):
    """What to write for a query.

    Attributes:
        tokens: All of it, the end token included.
        spans: Of each quote the place of its first token, and the place after its last one, where the closing
            marker begins.
        keys: Numbers of the quoted keys.
    """

    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    keys: tuple[int, ...]


class Targets:
    """Writes targets.

    Args:
        tokenizer: The model's.
        corpus: The passages.
        keys: What may be quoted, made with this tokenizer; their markers are written.
        thoughts: What stands before a quote. ``shared``: the content words of its key that stand in the
            question or in a key quoted before, which is what a model can know before it has found the
            passage; ``title``: the passage's title; ``none``: nothing. A quote that has none begins its line.
        answer: The last line's answer for queries that have none of their own; None leaves that line out.

    Raises:
        ConfigError: The name of the thoughts is unknown, or the tokenizer cannot write the markers.
    """

    def __init__(
        self,
        tokenizer: Any,
        corpus: Corpus,
        keys: Keys,
        thoughts: Thoughts = "shared",
        answer: str | None = None,
    ):
        if thoughts not in get_args(Thoughts):
            raise ConfigError(
                f"unknown thoughts {thoughts!r}; expected one of {', '.join(get_args(Thoughts))}."
            )
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.keys = keys
        self.thoughts = thoughts
        self.answer = answer
        self.markers = TextMarkers(tokenizer, *keys.markers)
        self._analyzer = Analyzer.guessed(corpus.texts)
        self._barred = frozenset(self.markers.barred.tolist())
        self._written: dict[str, list[int]] = {}
        self._of_passage: dict[int, list[int]] = {}
        for key, numbers in enumerate(keys.passages):
            for number in numbers:
                self._of_passage.setdefault(number, []).append(key)

    def write(self, query: Query, passages: Sequence[str]) -> QuotedTarget:
        """The target of a query, quoting a key of each of its passages, in this order.

        Of a passage's keys the one is quoted that shares most words with question and answers. A key is
        quoted once, though several passages have it.

        Raises:
            DataError: A passage is not in the corpus or has no key, or a thought or the answer cannot be
                written: it holds a marker, or a character that the tokenizer does not know.
        """
        chosen = self._chosen(query, passages)
        free = self._free(query, self._texts(query, chosen))
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
        """The key of each passage, with its title."""
        asked = self._words(" ".join((query.text, *query.answers)))
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
                    "title is empty): choose another kind of key, or take it out of the gold passages."
                )
            best = max(keys, key=lambda key: len(asked & self._words(self.keys.texts[key])))
            title = self.corpus.passages([number])[0].title if self.thoughts == "title" else ""
            chosen.setdefault(best, title)
        return chosen

    def _texts(self, query: Query, chosen: dict[int, str]) -> list[str]:
        """The free texts before each quote, and behind the last one."""
        known = self._words(query.text)
        texts = []
        for key, title in chosen.items():
            thought = title
            if self.thoughts == "shared":
                thought = " ".join(self._shared(self.keys.texts[key], known))
                known |= self._words(self.keys.texts[key])
            texts.append(f"{' '.join(thought.split())}: " * bool(thought.strip()) + self.keys.markers[0])
        answer = query.answers[0] if query.answers else self.answer
        if answer is not None:
            texts.append(f"{ANSWER} {' '.join(answer.split())}")
        return [texts[0], *(f"\n{text}" for text in texts[1:])]

    def _free(self, query: Query, texts: list[str]) -> list[list[int]]:
        """The tokens of free texts, checked."""
        new = [text for text in dict.fromkeys(texts) if text not in self._written]
        if len(self._written) + len(new) > _REMEMBERED:
            self._written.clear()
            new = list(dict.fromkeys(texts))
        if new:
            for text, tokens in zip(new, foreign_ids(self.tokenizer, new), strict=True):
                self._refuse_unwritable(query, text, tokens)
                self._written[text] = tokens
        return [self._written[text] for text in texts]

    def _refuse_unwritable(self, query: Query, text: str, tokens: list[int]) -> None:
        """A free text before a quote ends with the opening marker, and holds it nowhere else."""
        opened = [n + 1 for n in range(len(tokens)) if self.markers.opens(tokens[: n + 1])]
        wanted = [len(tokens)] if text.endswith(self.keys.markers[0]) else []
        if opened != wanted or self._barred.intersection(tokens):
            raise DataError(
                f"query {query.id!r}: {text.strip()!r} holds a marker of its own; choose others (markers)."
            )
        if self.tokenizer.unk_token_id is not None and self.tokenizer.unk_token_id in tokens:
            raise DataError(
                f"query {query.id!r}: the tokenizer cannot write {text!r}. Take its unknown characters out "
                "(ScratchT5: name them in `texts`), or take another model."
            )

    def _words(self, text: str) -> set[str]:
        """The content words of a text."""
        return set(self._analyzer.content(text, 1))

    def _shared(self, text: str, known: set[str]) -> list[str]:
        """The content words of a text that are known, as it writes them, each once."""
        return [w for word, w in self._analyzer.content(text, 1).items() if word in known][:_MOST]
