"""In-context retrieval-augmented language modelling (arXiv 2302.00083): perplexity behind retrieved
documents.

A frozen language model reads a text stride by stride; before each stride stand the documents that a retriever
found for the end of what came before. Perplexity is that of the whole text:

    exp(-(1 / N) sum_j sum_i log p(x[s j + i] | [R(q_j); x[.. s j + i - 1]]))

(equations 3 and 4 there), with N the tokens of the text, or its words for the word-level one. The first token
of a text is not scored where nothing stands before it, as is usual; behind a tokenizer's own token it is.

Any :class:`grls.retrieve.base.Retriever` will do; how documents are ordered is the chooser's affair
(:mod:`grls.answer.ralm.choose`), how the computation is shared :mod:`grls.answer.ralm.scoring`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from grls.answer.ralm.choose import AsRetrieved, Chooser
from grls.answer.ralm.scoring import TextScorer
from grls.answer.ralm.strides import Stride, WindowOptions, strides
from grls.data.codec import foreign_ids, wrapping
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Query
from grls.data.words import count
from grls.errors import ConfigError, DataError
from grls.models.positions import positions_in
from grls.retrieve.base import Retriever

_BLOCK_TOKENS = 1024
"""Tokens of the text that are retrieved for and scored together."""
_RETRIEVED = 256
"""Queries that a retriever gets at a time."""


class ScoredStride(NamedTuple):
    """A stride and what came of it.

    Attributes:
        first: Its first token.
        last: The token after its last.
        passages: Ids of the documents before it, in their order.
        log_probability: Of its tokens (nats).
        tokens: How many of them were scored.
    """

    first: int
    last: int
    passages: tuple[str, ...]
    log_probability: float
    tokens: int


class Perplexity(NamedTuple):
    """The perplexity of one or several texts.

    Attributes:
        token: A token.
        word: A word (what white space separates).
        tokens: Tokens scored.
        words: Words.
        strides: Strides.
        without: Strides for which nothing was retrieved.
    """

    token: float
    word: float
    tokens: int
    words: int
    strides: int
    without: int


def perplexity(scored: Iterable[ScoredStride], words: int) -> Perplexity:
    """Put strides together.

    Raises:
        DataError: No token was scored.
    """
    rows = list(scored)
    tokens = sum(row.tokens for row in rows)
    if not tokens or not words:
        raise DataError("there is nothing to score: a text needs at least two tokens.")
    likelihood = math.fsum(row.log_probability for row in rows)
    without = sum(not row.passages for row in rows)
    return Perplexity(
        _exp(-likelihood / tokens), _exp(-likelihood / words), tokens, words, len(rows), without
    )


class InContextRalm:
    """A frozen language model that reads with documents.

    Args:
        model: A transformers causal language model.
        tokenizer: Its tokenizer.
        options: What it sees.
        retriever: What finds documents; None where ``options.documents`` is 0.
        corpus: The retriever's corpus.
        chooser: Orders what was found; the retriever's own order by default.
        allow: What may be found, to keep the text itself out of its documents (see :mod:`grls.data.filters`).

    Raises:
        ConfigError: Documents are asked for without a retriever (or the other way round), the window is
            longer than the model's positions, or the model is no causal one.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        options: WindowOptions,
        retriever: Retriever | None = None,
        corpus: Corpus | None = None,
        chooser: Chooser | None = None,
        allow: Allow = None,
    ):
        if (options.documents > 0) != (retriever is not None and corpus is not None):
            raise ConfigError(
                "documents need a retriever with its corpus, and a retriever needs documents >= 1."
            )
        begin = wrapping(tokenizer)[0] if options.bos else []
        options.refuse_small(len(begin))
        refuse_long_window(model, options.window, "the model")
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.retriever = retriever
        self.corpus = corpus
        self.chooser = chooser or AsRetrieved()
        self.allow = allow
        self.documents = Documents(tokenizer, corpus, options.document_tokens)
        self.scorer = TextScorer(model, self.documents.tokens, options, begin)

    def scorer_of(self, model: Any) -> TextScorer:
        """Another model with the same tokenizer as a judge, which sees the same windows."""
        return TextScorer(model, self.documents.tokens, self.options, self.scorer.begin)

    def tokens(self, text: str) -> list[int]:
        """A text as token ids; what is spelled like a special token is text.

        The tokens that the tokenizer puts before a text are not among them: they stand before every input.
        """
        return _tokens(self.tokenizer, text)

    def score(self, text: Sequence[int], begin: int = 0) -> Iterator[list[ScoredStride]]:
        """Score the strides of a text, block by block, so that a run can be kept as it goes.

        Args:
            text: Token ids.
            begin: Strides to leave out, as done.

        Yields:
            The strides of a block.
        """
        todo = strides(len(text), self.options)[begin:]
        size = max(1, _BLOCK_TOKENS // self.options.stride)
        for n in range(0, len(todo), size):
            yield self._block(text, todo[n : n + size])

    def documents_for(self, text: Sequence[int], some: Sequence[Stride]) -> list[tuple[int, ...]]:
        """The passages put before each stride, best first; none before the first of a text."""
        candidates = self.candidates_for(text, some)
        asked = [n for n, found in enumerate(candidates) if found]
        chosen: list[tuple[int, ...]] = [()] * len(some)
        if asked:
            ordered = self.chooser.order(text, [some[n] for n in asked], [candidates[n] for n in asked])
            for n, numbers in zip(asked, ordered, strict=True):
                chosen[n] = tuple(numbers[: self.options.documents])
        return chosen

    def candidates_for(self, text: Sequence[int], some: Sequence[Stride]) -> list[list[int]]:
        """Numbers of the passages retrieved for each stride, in the retriever's order."""
        if self.retriever is None or self.corpus is None:
            return [[] for _ in some]
        candidates: list[list[int]] = [[] for _ in some]
        texts = self.tokenizer.batch_decode([text[stride.asks(self.options.query_tokens)] for stride in some])
        # White space asks for nothing, and many retrievers refuse it.
        asked = [n for n, words in enumerate(texts) if some[n].first > 0 and words.strip()]
        queries = [Query(str(some[n].first), texts[n]) for n in asked]
        k = max(self.options.documents, self.chooser.candidates)
        hits = [
            found
            for n in range(0, len(queries), _RETRIEVED)
            for found in self.retriever.retrieve(queries[n : n + _RETRIEVED], k, self.allow)
        ]
        numbers = self.corpus.numbers([hit.id for found in hits for hit in found])
        known = iter(numbers)
        for n, found in zip(asked, hits, strict=True):
            own = [next(known) for _ in found]
            candidates[n] = [number for number in own if number is not None]
        return candidates

    def _block(self, text: Sequence[int], some: Sequence[Stride]) -> list[ScoredStride]:
        documents = self.documents_for(text, some)
        wanted = [self.scorer.wanted(names, stride) for stride, names in zip(some, documents, strict=True)]
        values = self.scorer.log_probabilities(text, wanted)
        ids = self._ids
        return [
            ScoredStride(stride.first, stride.last, ids(names), float(own.sum()), len(own))
            for stride, names, own in zip(some, documents, values, strict=True)
        ]

    def _ids(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return () if self.corpus is None else tuple(self.corpus.ids(numbers))


class Documents:
    """Passages as a language model gets them: title, text and an end of line, cut to a number of tokens.

    Args:
        tokenizer: The model's.
        corpus: The passages; None where there are none to be had.
        limit: Tokens at most, the end of line included.
    """

    def __init__(self, tokenizer: Any, corpus: Corpus | None, limit: int):
        self._tokenizer = tokenizer
        self._corpus = corpus
        self._limit = limit
        self._known: dict[int, list[int]] = {}
        self._end = _tokens(tokenizer, "\n")

    def tokens(self, number: int) -> list[int]:
        """Token ids of a passage by its number."""
        if number not in self._known:
            if self._corpus is None:
                raise ValueError("there is no corpus")
            passage = self._corpus[number]
            text = f"{passage.title}\n{passage.text}" if passage.title else passage.text
            room = self._limit - len(self._end)
            self._known[number] = _tokens(self._tokenizer, text)[: max(0, room)] + self._end[: self._limit]
        return self._known[number]


def refuse_long_window(model: Any, window: int, name: str) -> None:
    """Refuse a window that a model has no positions for.

    Raises:
        ConfigError: It has fewer than ``window``.
    """
    most = positions_in(model.config)
    if most is not None and window > most:
        raise ConfigError(f"a window of {window} tokens, but {name} has {most} positions; lower it.")


def words_of(text: str) -> int:
    """Words of a text: what white space separates, and two characters where none does."""
    return count(text)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return foreign_ids(tokenizer, [text])[0]


def _exp(value: float) -> float:
    return float(np.exp(value)) if value < 700 else math.inf
