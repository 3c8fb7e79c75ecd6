"""Target distributions over the spans of a passage, for a query.

Legend: N passages, V spans, W words of all passages, U distinct words, n spans of a target.

Every span of a right passage is right, but a span without any word of the query teaches the model little. So
spans weigh more whose first words occur in the query. Let g(w) = log((N + 1) / (n_w + 1)) for a word w of the
query that is in n_w passages, and 0 for other words. A span v of the words w_0, w_1, … has the probability

    q(v | passage, query) proportional to exp((g(w_0) + 0.6 (g(w_1) + g(w_2) + g(w_3))) / T).

It is uniform where the passage has no word of the query. (arXiv 2204.10628, section 3.1, samples n-grams by
their overlap with the query.) Words are compared by their first six letters, ignoring case. In a hop, words
of the evidence count as words of the query. The module knows nothing of models or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.evidence import excerpt
from grls.data.spans import Spans
from grls.data.words import pieces, stem_key
from grls.errors import at_least, bounded
from grls.index.rows import Ints
from grls.models.base import Floats

_SHARES = (1.0, 0.6, 0.6, 0.6)
"""Weights of the first words of a span."""


@dataclass(frozen=True)
class WriteSpans:
    """Options of training on spans of passages; the generator learns to write the spans that fit the query.

    Args:
        words: Number of words of a span.
        drawn: Number of spans drawn for every hop, along which the loss is taken.
        temperature: Temperature of the distribution over the spans of a passage (nats). Low: only spans with
            words of the query; high: all spans alike.
        evidence: Words of the evidence passages count as words of the query.
    """

    words: int = 8
    drawn: int = 4
    temperature: float = 1.0
    evidence: bool = True

    def check(self) -> None:
        """Refuse numbers that are not positive.

        Raises:
            ConfigError: A number is not positive.
        """
        # Not in the constructor, where jsonargparse would hide the error.
        at_least(1, "data.spans.", words=self.words, drawn=self.drawn)
        bounded("(0, inf)", "data.spans.", temperature=self.temperature)


class SpanTargets:
    """From distributions over passages to distributions over their spans.

    Args:
        spans: The spans.
        temperature: The temperature T (nats).
        evidence: Words of the evidence passages count as words of the query.
        evidence_words: Words of each evidence passage that a hop reads (:func:`grls.data.evidence.excerpt`);
            0: all. Other words do not count.
    """

    def __init__(
        self, spans: Spans, temperature: float = 1.0, evidence: bool = True, evidence_words: int = 0
    ):
        self.spans = spans
        self.evidence_words = evidence_words
        self.temperature = temperature
        self.evidence = evidence
        self._stems: dict[str, int] = {}
        words: list[int] = []
        counts = []
        for passage in spans.corpus:
            keys = [stem_key(word) for word in spans.pieces(passage)]
            words += [self._stems.setdefault(key, len(self._stems)) for key in keys]
            counts.append(len(keys))
        self._words = np.array([*words, *[0] * len(_SHARES)], dtype=np.int64)
        ends = np.cumsum(counts)
        owners = spans.owners[:-1]
        first = (ends - counts)[owners] + spans.starts
        self._first: Ints = np.append(first, 0)
        """``[V + 1]`` index of each span's first word among all words; DONE has no word."""
        self._left: Ints = np.append(ends[owners] - first, 0)
        """``[V + 1]`` number of words from there to the end of the passage."""
        held = np.unique(np.stack((np.repeat(np.arange(len(counts)), counts), words)), axis=1)[1]
        holders = np.bincount(held, minlength=len(self._stems))
        self._worth: Floats = np.log((len(counts) + 1) / (holders + 1))

    def spread(
        self, query: str, weights: Mapping[int, float], evidence: Sequence[int] = ()
    ) -> tuple[Ints, Floats]:
        """Spread weights of passages over their spans.

        Args:
            query: The text of the query.
            weights: Weights of passages by number; number N is DONE.
            evidence: Numbers of the evidence passages. Their words count as words of the query, since often
                only the evidence names the subject of the next passage.

        Returns:
            ``[n]`` spans, and ``[n]`` weights; the spans of a passage sum to the passage's weight.
        """
        passages = np.array(list(weights), dtype=np.int64)
        spans = self.spans.of(passages)
        scores = self._common(query, evidence if self.evidence else (), spans) / self.temperature
        counts = np.diff(np.append(np.flatnonzero(np.diff(self.spans.owners[spans], prepend=-1)), len(spans)))
        starts = np.cumsum(counts) - counts
        masses = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
        masses /= np.repeat(np.add.reduceat(masses, starts), counts)
        return spans, masses * np.repeat(list(weights.values()), counts)

    def _common(self, query: str, evidence: Sequence[int], spans: Ints) -> Floats:
        """``[n]`` overlap of the first words of spans with query and evidence (nats)."""
        worth = np.zeros(max(len(self._stems), 1))
        asked = [self._stems[stem] for stem in map(stem_key, pieces(query)) if stem and stem in self._stems]
        worth[asked] = self._worth[asked]
        for passage in self.spans.corpus.passages(evidence) if evidence else ():
            words = self.spans.pieces(excerpt(query, passage, self.evidence_words))
            held = [self._stems[stem] for stem in map(stem_key, words) if stem in self._stems]
            worth[held] = self._worth[held]
        if "" in self._stems:
            worth[self._stems[""]] = 0.0
        first, left = self._first[spans], self._left[spans]
        overlap: Floats = np.zeros(len(spans))
        for n, share in enumerate(_SHARES):
            overlap += share * np.where(left > n, worth[self._words[first + n]], 0.0)
        return overlap
