"""In-context retrieval-augmented language modelling (arXiv 2302.00083): perplexity behind retrieved
documents.

A frozen language model reads a text stride by stride. Before each stride stand the documents that a retriever
found for the last tokens before it. The perplexity of the whole text is

    exp(-(1 / N) sum_j sum_i log p(x[s j + i] | [R(q_j); x[.. s j + i - 1]]))

(equations 3 and 4 there), with N the number of tokens of the text, or of words for the word-level perplexity.
The first token of a text is scored only if the tokenizer puts a token before it.

Any :class:`grls.retrieve.base.Retriever` will do. Order of the documents: :mod:`grls.answer.ralm.choose`.
Shared computation: :mod:`grls.answer.ralm.scoring`.
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
from grls.errors import ConfigError, DataError
from grls.models.base import positions_in
from grls.retrieve.base import Retriever

_BLOCK_TOKENS = 1024
"""Tokens of the text in a block: its strides are retrieved for and scored together."""
_RETRIEVED = 256
"""Queries of one call of the retriever."""


class ScoredStride(NamedTuple):
    """A scored stride.

    Attributes:
        first: Its first token.
        last: The token after its last.
        passages: Ids of the documents before it, in their order.
        log_probability: Log-probability of its tokens (nats).
        tokens: Number of scored tokens.
    """

    first: int
    last: int
    passages: tuple[str, ...]
    log_probability: float
    tokens: int


class Perplexity(NamedTuple):
    """The perplexity of one or several texts.

    Attributes:
        token: Perplexity a token.
        word: Perplexity a word (separated by white space).
        tokens: Number of scored tokens.
        words: Number of words.
        strides: Number of strides.
        without: Number of strides without a document.
    """

    token: float
    word: float
    tokens: int
    words: int
    strides: int
    without: int


def perplexity(scored: Iterable[ScoredStride], words: int) -> Perplexity:
    """The perplexity of scored strides.

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
        options: Strides, documents and window.
        retriever: Finds documents; None if ``options.documents`` is 0.
        corpus: The retriever's corpus.
        chooser: Orders the retrieved documents; the retriever's order by default.
        allow: Filter of the documents, to keep the text itself out (see :mod:`grls.data.filters`).

    Raises:
        ConfigError: Documents are asked for without a retriever (or the other way round), the window is
            longer than the model's positions, or the model is not causal.
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

    def tokens(self, text: str) -> list[int]:
        """A text as token ids; a text that spells a special token stays text.

        The tokens that the tokenizer puts before a text are left out: they stand before every input.
        """
        return _tokens(self.tokenizer, text)

    def score(self, text: Sequence[int], begin: int = 0) -> Iterator[list[ScoredStride]]:
        """Score the strides of a text, block by block, so that a run can be kept as it goes.

        Args:
            text: Token ids.
            begin: Strides to skip, because an earlier run has done them.

        Yields:
            The strides of a block.
        """
        todo = strides(len(text), self.options)[begin:]
        size = max(1, _BLOCK_TOKENS // self.options.stride)
        for n in range(0, len(todo), size):
            block = todo[n : n + size]
            documents = self.documents_for(text, block)
            wanted = [self.scorer.wanted(*pair) for pair in zip(documents, block, strict=True)]
            values = self.scorer.log_probabilities(text, wanted)
            yield [
                ScoredStride(
                    stride.first,
                    stride.last,
                    () if self.corpus is None else tuple(self.corpus.ids(numbers)),
                    float(scores.sum()),
                    len(scores),
                )
                for stride, numbers, scores in zip(block, documents, values, strict=True)
            ]

    def documents_for(self, text: Sequence[int], block: Sequence[Stride]) -> list[tuple[int, ...]]:
        """The passages put before each stride, best first; none before the first stride of a text."""
        candidates = self.candidates_for(text, block)
        asked = [n for n, numbers in enumerate(candidates) if numbers]
        chosen: list[tuple[int, ...]] = [()] * len(block)
        if asked:
            ordered = self.chooser.order(text, [block[n] for n in asked], [candidates[n] for n in asked])
            for n, numbers in zip(asked, ordered, strict=True):
                chosen[n] = tuple(numbers[: self.options.documents])
        return chosen

    def candidates_for(self, text: Sequence[int], block: Sequence[Stride]) -> list[list[int]]:
        """Numbers of the passages retrieved for each stride, in the retriever's order."""
        if self.retriever is None or self.corpus is None:
            return [[] for _ in block]
        candidates: list[list[int]] = [[] for _ in block]
        texts = self.tokenizer.batch_decode(
            [text[stride.asks(self.options.query_tokens)] for stride in block]
        )
        # A query of white space finds nothing, and many retrievers refuse it.
        asked = [n for n, words in enumerate(texts) if block[n].first > 0 and words.strip()]
        queries = [Query(str(block[n].first), texts[n]) for n in asked]
        k = max(self.options.documents, self.chooser.candidates)
        rankings = [
            ranking
            for n in range(0, len(queries), _RETRIEVED)
            for ranking in self.retriever.retrieve(queries[n : n + _RETRIEVED], k, self.allow)
        ]
        numbers = iter(self.corpus.numbers([hit.id for ranking in rankings for hit in ranking]))
        for n, ranking in zip(asked, rankings, strict=True):
            of_stride = [next(numbers) for _ in ranking]
            candidates[n] = [number for number in of_stride if number is not None]
        return candidates


class Documents:
    """Passages as a language model reads them: title, text and an end of line, cut to a number of tokens.

    Args:
        tokenizer: The model's tokenizer.
        corpus: The passages; None without retrieval.
        limit: Most tokens of a passage, the end of line included.
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
        ConfigError: The model has fewer positions than ``window``.
    """
    most = positions_in(model.config)
    if most is not None and window > most:
        raise ConfigError(f"a window of {window} tokens, but {name} has {most} positions; lower the window.")


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return foreign_ids(tokenizer, [text])[0]


def _exp(value: float) -> float:
    return float(np.exp(value)) if value < 700 else math.inf
