"""Retrieval-augmented language modelling in context (arXiv 2302.00083): perplexity behind documents.

A frozen language model reads a text stride by stride. Before each stride stand the documents that a
retriever found for the last tokens before it. The perplexity of the whole text is

    exp(-(1 / N) sum_j sum_i log p(x[s j + i] | [R(q_j); x[.. s j + i - 1]]))

(equations 3 and 4 there), with N the number of tokens of the text, or of words for the word-level
perplexity. The first token of a text is scored only if the tokenizer puts a token before it.

Stride j holds the tokens ``s j … s (j + 1) - 1``. Its query is the l tokens before it (equation 4 there:
q_j = x[s j - l + 1 .. s j], counted from 1). Before the stride stand the b tokens that the tokenizer puts
before every text, its documents, then as much of the text as fits into the window: the text is cut at its
start by the excess over the window (section 3.1), so a short document leaves room for more text. Which of
the retrieved documents the model reads says a :class:`Judge` (section "Reranking" there).

Legend: n tokens of a text, s stride, l query length, w window, D tokens of all documents at most, b
tokens before every text; B sequences of a batch, L tokens of the longest, V vocabulary, R rows asked of
the head.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from grls.answer.ralm.options import WindowOptions
from grls.data.codec import foreign_ids, wrapping
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option
from grls.models.base import positions_in
from grls.models.head import Head
from grls.models.load.language import refuse_foresight
from grls.retrieve.base import Retriever

Candidates = Sequence[Sequence[int]]


class Stride(NamedTuple):
    """A stretch of a text between two retrievals: its first token, and the token after its last."""

    first: int
    last: int

    def asks(self, tokens: int) -> slice:
        return slice(max(0, self.first - tokens), self.first)


def strides(length: int, options: WindowOptions) -> list[Stride]:
    step = options.stride
    return [Stride(first, min(first + step, length)) for first in range(0, length, step)]


Floats = npt.NDArray[np.float64]


_HEAD_ROWS = 256
"""Rows of logits at a time: 50 MB for a vocabulary of 50,000."""
_WHOLE_LOGITS = 1024
"""Tokens at a time for a model that changes logits behind its head: it needs the logits of all tokens."""


class Wanted(NamedTuple):
    """A stretch of a text to score.

    Attributes:
        documents: Names of the documents before it, in order; see :class:`TextScorer`.
        start: The first token of the text that the model sees.
        first: Its first token; something stands before it.
        last: The token after its last.
    """

    documents: tuple[int, ...]
    start: int
    first: int
    last: int


class _Sequence(NamedTuple):
    """A sequence of one pass: tokens, and positions ``[m]`` whose next token is a target."""

    tokens: list[int]
    positions: list[int]
    targets: list[int]


class TextScorer:
    """Scores stretches of texts under a causal language model; documents are token ids.

    One pass over ``document + text`` yields the predictions of *every* stretch of the text behind that
    document. So stretches are grouped by documents and start of the text, and each group is one sequence:
    consecutive strides with the same document cost little more than one. The head, the most expensive
    layer of a small model, sees only the positions whose prediction is asked for.

    ``begin`` are token ids before every input, ``batch_tokens`` the tokens of a batch with padding,
    ``computed`` the tokens computed so far without it.
    """

    def __init__(
        self,
        model: Any,
        document: Callable[[int], Sequence[int]],
        window: WindowOptions | None = None,
        begin: Sequence[int] = (),
        batch_tokens: int = 4096,
    ):
        if model.config.is_encoder_decoder:
            raise ConfigError(
                f"{type(model).__name__} is an encoder-decoder; perplexity needs a causal language model."
            )
        self.model = model.eval()
        refuse_foresight(self.model)
        self.document = document
        self.window = window or WindowOptions()
        self.begin = tuple(begin)
        self.computed = 0
        self._head = Head(model)
        self.batch_tokens = batch_tokens if self._head.linear else min(batch_tokens, _WHOLE_LOGITS)

    def before(self, documents: Sequence[int]) -> list[int]:
        return [*self.begin, *(token for name in documents for token in self.document(name))]

    def start(self, documents: Sequence[int], last: int) -> int:
        """The first token of the text that the model sees behind documents, to predict up to ``last``."""
        length = len(self.begin) + sum(len(self.document(name)) for name in documents)
        return self.window.start(length, last)

    def wanted(self, documents: tuple[int, ...], stride: Stride) -> Wanted:
        """The stretch to score for a stride behind documents: every token that has a token before it."""
        alone = not stride.first and not documents and not self.begin
        return Wanted(documents, self.start(documents, stride.last), stride.first + alone, stride.last)

    def log_probabilities(self, text: Sequence[int], stretches: Sequence[Wanted]) -> list[Floats]:
        """Log-probabilities (nats) of the tokens of each stretch, ``[last - first]``."""
        groups: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)
        for n, stretch in enumerate(stretches):  # equal documents are read once, so that ties stay ties
            groups[tuple(self.before(stretch.documents)), stretch.start].append(n)
        sequences: list[_Sequence] = []
        columns_of: list[dict[int, int]] = []  # target -> its column among the targets of the sequence
        for (before, start), members in groups.items():
            targets = sorted({t for n in members for t in range(stretches[n].first, stretches[n].last)})
            if targets and targets[0] + len(before) <= start:
                raise ValueError(f"token {targets[0]} has nothing before it")
            tokens = [*before, *text[start : targets[-1]]] if targets else []
            positions = [len(before) + t - start - 1 for t in targets]
            sequences.append(_Sequence(tokens, positions, [text[t] for t in targets]))
            columns_of.append({target: n for n, target in enumerate(targets)})
        values: list[Floats] = [np.empty(0)] * len(sequences)
        order = sorted(
            (n for n in range(len(sequences)) if sequences[n].tokens), key=lambda n: -len(sequences[n].tokens)
        )
        while order:  # similar lengths together
            size = max(1, self.batch_tokens // len(sequences[order[0]].tokens))
            batch, order = order[:size], order[size:]
            ends = np.cumsum([len(sequences[n].targets) for n in batch])
            parts = np.split(self._batch([sequences[n] for n in batch]), ends[:-1])
            for n, part in zip(batch, parts, strict=True):
                values[n] = part
        scores: list[Floats] = [np.empty(0)] * len(stretches)
        for members, columns, row in zip(groups.values(), columns_of, values, strict=True):
            for n in members:
                first, last = stretches[n].first, stretches[n].last
                if last > first:
                    scores[n] = row[columns[first] : columns[first] + last - first]
        return scores

    @torch.inference_mode()
    def _batch(self, sequences: Sequence[_Sequence]) -> Floats:
        device = self.model.device
        tokens = torch.zeros((len(sequences), len(sequences[0].tokens)), dtype=torch.long)
        rows, positions, targets = [], [], []
        for row, sequence in enumerate(sequences):  # padding stands behind, so a causal model does not see it
            tokens[row, : len(sequence.tokens)] = torch.tensor(sequence.tokens)
            self.computed += len(sequence.tokens)
            rows += [row] * len(sequence.positions)
            positions += sequence.positions
            targets += sequence.targets
        read = self._head.read(input_ids=tokens.to(device), use_cache=False)
        hidden = read[torch.tensor(rows, device=device), torch.tensor(positions, device=device)]
        token_ids = torch.tensor(targets, device=device)
        parts = []
        for n in range(0, len(hidden), _HEAD_ROWS):
            logits = self._head.all(hidden[n : n + _HEAD_ROWS])  # [R, V]
            chosen = logits.gather(1, token_ids[n : n + _HEAD_ROWS, None])[:, 0]
            parts.append(chosen - logits.logsumexp(-1))
        scores: Floats = torch.cat(parts).double().cpu().numpy()
        if not np.isfinite(scores).all():
            raise ConfigError(f"the model's logits are not numbers; try another {Option('precision')}.")
        return scores


JUDGED = 16
"""Tokens at the end of a prefix that a language model judges documents by."""


class Judge(Protocol):
    """What scores the candidates of strides; without one the retriever's order stays."""

    def scores(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[np.ndarray]:
        """A value for each stride of a text (token ids) and each of its candidates (numbers of passages)."""
        ...


@dataclass(frozen=True)
class Likelihood:
    """A language model as judge: how likely (nats) a span of the text is behind each candidate.

    The paper's zero-shot reranking (equation 6): the stride itself is unknown when its document is chosen, so
    the span is the end of the prefix, ``argmax_i p(x[s j - s' + 1 .. s j] | [d_i; x[.. s j - s']])``. If a
    window leaves fewer than s' tokens beside the longest candidate, all candidates are judged by these; the
    paper's window (1,024 tokens, documents of at most 256) never does. A longer candidate has less of the
    text before them.

    Args:
        scorer: Scores under the judge: the language model itself, or a smaller one with the same tokenizer.
        tokens: Number of predicted tokens at the end of the prefix, s'; None: the stride itself, the oracle,
            which looks at the tokens to predict. So it is the upper bound of reranking, and no method.
    """

    scorer: TextScorer
    tokens: int | None = None

    def scores(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[np.ndarray]:
        stretches = []
        for stride, numbers in zip(strides, candidates, strict=True):
            starts = [self.scorer.start((number,), stride.last) for number in numbers]
            span = stride.first, stride.last
            if self.tokens is not None:
                span = max(*starts, stride.first - self.tokens, 0), stride.first
            stretches += [
                Wanted((number,), start, *span) for number, start in zip(numbers, starts, strict=True)
            ]
        sums = np.array([values.sum() for values in self.scorer.log_probabilities(text, stretches)])
        return split_by(candidates, sums)


def split_by(candidates: Candidates, values: np.ndarray) -> list[np.ndarray]:
    """The values of all candidates, for each stride its own."""
    return np.split(values, np.cumsum([len(numbers) for numbers in candidates])[:-1])


_RETRIEVED = 256
"""Queries of one call of the retriever."""


def refuse_long_window(model: Any, window: int, name: str) -> None:
    positions = positions_in(model.config)
    if positions is not None and window > positions:
        raise ConfigError(
            f"a window of {window} tokens, but {name} has {positions} positions; lower the window."
        )


def _exp(value: float) -> float:
    return float(np.exp(value)) if value < 700 else math.inf


class ScoredStride(NamedTuple):
    """A scored stride: its tokens ``first`` to before ``last``, and how many ``tokens`` were scored.

    ``passages``: ids of the documents before it, in their order. ``log_probability`` is in nats.
    """

    first: int
    last: int
    passages: tuple[str, ...]
    log_probability: float
    tokens: int


class Perplexity(NamedTuple):
    """Perplexities a token and a word (separated by white space), and the counts behind them.

    ``without``: number of strides without a document.
    """

    token: float
    word: float
    tokens: int
    words: int
    strides: int
    without: int


def perplexity(scored: Iterable[ScoredStride], words: int) -> Perplexity:
    rows = list(scored)
    tokens = sum(row.tokens for row in rows)
    if not tokens or not words:
        raise DataError("there is nothing to score: a text needs at least two tokens.")
    likelihood = math.fsum(row.log_probability for row in rows)
    without = sum(not row.passages for row in rows)
    return Perplexity(
        _exp(-likelihood / tokens), _exp(-likelihood / words), tokens, words, len(rows), without
    )


@dataclass(eq=False, repr=False)
class InContextRalm:
    """A frozen language model that reads with documents.

    ``judge`` scores ``candidates`` retrieved documents of a stride, and the best are read; None: the
    retriever's first ones are. ``allow`` is a filter that keeps the text itself out
    (:mod:`grls.data.filters`).
    """

    model: Any
    tokenizer: Any
    options: WindowOptions
    retriever: Retriever | None = None
    corpus: Corpus | None = None
    judge: Judge | None = None
    candidates: int = 0
    allow: Allow = None

    def __post_init__(self) -> None:
        options = self.options
        begin = wrapping(self.tokenizer)[0]
        options.refuse_small(len(begin))
        refuse_long_window(self.model, options.window, "the model")
        self.scorer = TextScorer(self.model, self.document, options, begin)
        self._documents: dict[int, list[int]] = {}
        self._end = self.tokens("\n")

    def tokens(self, text: str) -> list[int]:
        """A text as token ids; a text that spells a special token stays text.

        The tokens that the tokenizer puts before a text are left out: they stand before every input.
        """
        return foreign_ids(self.tokenizer, [text])[0]

    def document(self, number: int) -> list[int]:
        """Token ids of a passage as the model reads it: title, text and an end of line, cut to the limit."""
        if number not in self._documents:
            assert self.corpus is not None
            passage, limit = self.corpus[number], self.options.document_tokens
            text = f"{passage.title}\n{passage.text}" if passage.title else passage.text
            room = max(0, limit - len(self._end))
            self._documents[number] = self.tokens(text)[:room] + self._end[:limit]
        return self._documents[number]

    def ids(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return () if self.corpus is None else tuple(self.corpus.ids(numbers))

    def score(self, text: Sequence[int], block: Sequence[Stride]) -> list[ScoredStride]:
        documents = self.documents_for(text, block)
        stretches = [self.scorer.wanted(*pair) for pair in zip(documents, block, strict=True)]
        values = self.scorer.log_probabilities(text, stretches)
        return [
            ScoredStride(*stride, self.ids(numbers), float(scores.sum()), len(scores))
            for stride, numbers, scores in zip(block, documents, values, strict=True)
        ]

    def documents_for(self, text: Sequence[int], block: Sequence[Stride]) -> list[tuple[int, ...]]:
        """The passages put before each stride, best first; none before the first stride of a text."""
        chosen = self.candidates_for(text, block)
        retrieved = [n for n, numbers in enumerate(chosen) if numbers]
        if self.judge is not None and retrieved:
            found = [chosen[n] for n in retrieved]
            scores = self.judge.scores(text, [block[n] for n in retrieved], found)
            for n, numbers, values in zip(retrieved, found, scores, strict=True):
                # Equal ones stay in the retriever's order.
                chosen[n] = [numbers[best] for best in np.argsort(-values, kind="stable")]
        return [tuple(numbers[: self.options.documents]) for numbers in chosen]

    def candidates_for(self, text: Sequence[int], block: Sequence[Stride]) -> list[list[int]]:
        """Numbers of the passages retrieved for each stride, in the retriever's order."""
        candidates: list[list[int]] = [[] for _ in block]
        if self.retriever is None or self.corpus is None:
            return candidates
        texts = self.tokenizer.batch_decode(
            [text[stride.asks(self.options.query_tokens)] for stride in block]
        )
        # A query of white space finds nothing, and many retrievers refuse it.
        searched = [n for n, words in enumerate(texts) if block[n].first > 0 and words.strip()]
        queries = [Query(str(block[n].first), texts[n]) for n in searched]
        k = max(self.options.documents, self.candidates)
        rankings = [
            ranking
            for n in range(0, len(queries), _RETRIEVED)
            for ranking in self.retriever.retrieve(queries[n : n + _RETRIEVED], k, self.allow)
        ]
        numbers = iter(self.corpus.numbers([hit.id for ranking in rankings for hit in ranking]))
        for n, ranking in zip(searched, rankings, strict=True):
            found = [next(numbers) for _ in ranking]
            candidates[n] = [number for number in found if number is not None]
        return candidates
