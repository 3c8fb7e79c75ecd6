"""Reranking: which of the retrieved documents a language model reads (arXiv 2302.00083, section "Reranking").

A rule takes the strides of a text with their candidates (numbers of passages in the retriever's order), and
returns the candidates reordered, best first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from grls.answer.ralm.scoring import TextScorer, Wanted
from grls.answer.ralm.strides import Stride
from grls.errors import ConfigError

Candidates = Sequence[Sequence[int]]


class Chooser(Protocol):
    """A rule that orders the candidates of strides."""

    @property
    def candidates(self) -> int:
        """Number of candidates to choose from; 0: as many as the model reads."""
        ...

    def order(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[list[int]]:
        """The candidates of each stride, best first.

        Args:
            text: Token ids of the whole text.
            strides: Strides of the text.
            candidates: Numbers of the passages of each stride, in the retriever's order.
        """
        ...


@dataclass(frozen=True)
class AsRetrieved:
    """The retriever's order."""

    candidates: int = 0

    def order(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[list[int]]:
        """The candidates as they are."""
        return [list(numbers) for numbers in candidates]


@dataclass(frozen=True)
class ZeroShot:
    """A language model as judge: the document under which the end of the prefix is most likely (equation 6).

    The stride itself is unknown when its document is chosen, so the judge predicts the last tokens of the
    prefix instead: ``argmax_i p(x[s j - s' + 1 .. s j] | [d_i; x[.. s j - s']])``. All candidates of a stride
    are judged by the same tokens. If a window leaves fewer than s' tokens beside the longest candidate, these
    are fewer than in equation 6; the paper's window (1,024 tokens, documents of at most 256) never does. A
    longer candidate has less of the text before them, since the window is cut for the stride to come.

    Args:
        scorer: Scores under the judge: the language model itself, or a smaller one with the same tokenizer.
        tokens: Number of predicted tokens at the end of the prefix, s'.
        candidates: Documents to choose from.
    """

    scorer: TextScorer
    tokens: int = 16
    candidates: int = 16

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigError(f"reranking needs at least 1 token to predict, got {self.tokens}.")

    def order(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[list[int]]:
        """The candidates by the likelihood of the end of the prefix."""
        starts = [
            max(self.scorer.start((number,), stride.last) for number in numbers)
            for stride, numbers in zip(strides, candidates, strict=True)
        ]
        spans = [
            (max(start, stride.first - self.tokens, 0), stride.first)
            for start, stride in zip(starts, strides, strict=True)
        ]
        return _by_likelihood(self.scorer, text, strides, candidates, spans)


@dataclass(frozen=True)
class Oracle:
    """The document under which the stride itself is most likely: the upper bound of reranking.

    It looks at the tokens to predict, so it is a bound and no method.

    Args:
        scorer: Scores under the language model.
        candidates: Documents to choose from.
    """

    scorer: TextScorer
    candidates: int = 16

    def order(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[list[int]]:
        """The candidates by the likelihood of the stride."""
        spans = [(stride.first, stride.last) for stride in strides]
        return _by_likelihood(self.scorer, text, strides, candidates, spans)


def likelihoods(
    scorer: TextScorer,
    text: Sequence[int],
    strides: Sequence[Stride],
    candidates: Candidates,
    spans: Sequence[tuple[int, int]],
) -> list[np.ndarray]:
    """Log-probability (nats) of a span of each stride's window behind each of its candidates.

    Args:
        scorer: Scores under the language model.
        text: Token ids of the whole text.
        strides: S strides of the text.
        candidates: ``[S]`` numbers of the passages of each.
        spans: ``[S]`` first token and the token after the last one.

    Returns:
        ``[S][candidates of the stride]``.
    """
    wanted = [
        Wanted((number,), scorer.start((number,), stride.last), *span)
        for stride, numbers, span in zip(strides, candidates, spans, strict=True)
        for number in numbers
    ]
    sums = np.array([values.sum() for values in scorer.log_probabilities(text, wanted)])
    return np.split(sums, np.cumsum([len(numbers) for numbers in candidates])[:-1])


def _by_likelihood(
    scorer: TextScorer,
    text: Sequence[int],
    strides: Sequence[Stride],
    candidates: Candidates,
    spans: Sequence[tuple[int, int]],
) -> list[list[int]]:
    """Candidates by likelihood; equal ones stay in the retriever's order."""
    scores = likelihoods(scorer, text, strides, candidates, spans)
    return [
        [numbers[n] for n in np.argsort(-values, kind="stable")]
        for numbers, values in zip(candidates, scores, strict=True)
    ]
