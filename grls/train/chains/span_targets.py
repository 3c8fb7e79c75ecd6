"""Which spans of a passage a query is to write.

Legend: N passages, V spans, W words of all passages, U distinct ones, n spans that are asked for.

Every span of a right passage is right, but some say nothing of the query, and a model that is to write them
learns nothing that it could use. So a span counts the more, the more its first words have in common with the
query: with g(w) = log((N + 1) / (n_w + 1)) for a word w that n_w passages hold and the query, too, and 0 for
another, and a span of the words w_0, w_1, …

    q(v | passage, query) proportional to exp((g(w_0) + 0.6 (g(w_1) + g(w_2) + g(w_3))) / T),

which is uniform where the passage has no word of the query, as in the sampling of n-grams by their overlap
with the query in arXiv 2204.10628, section 3.1. Words are compared by their first six letters, without case.
In a hop the words of the passages found so far count as words of the query. The module knows nothing of
models or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.spans import Spans
from grls.data.words import pieces, stem_key
from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.models.base import Floats

_SHARES = (1.0, 0.6, 0.6, 0.6)
"""What the first words of a span count."""


@dataclass(frozen=True)
class WriteSpans:
    """Spans of passages, of which the generator learns to write those that fit the query.

    Args:
        words: Words of a span.
        drawn: Spans drawn for every hop: the loss is taken along them.
        temperature: T of :mod:`grls.train.chains.span_targets` (nats): how much a span must have in common
            with the query; large: all spans of a passage alike.
    """

    words: int = 8
    drawn: int = 4
    temperature: float = 1.0

    def check(self) -> None:
        """Refuse numbers that are not positive.

        Raises:
            ConfigError: One is not.
        """
        # Not in the constructor: jsonargparse would bury our error in one of its own.
        if min(self.words, self.drawn) < 1 or not 0 < self.temperature < np.inf:
            raise ConfigError(
                "spans: words and drawn must be at least 1 and temperature above 0, got "
                f"{self.words}, {self.drawn} and {self.temperature}."
            )


class SpanTargets:
    """From distributions over passages to distributions over their spans.

    Args:
        spans: The spans.
        temperature: T.
    """

    def __init__(self, spans: Spans, temperature: float = 1.0):
        self.spans = spans
        self.temperature = temperature
        self._stems: dict[str, int] = {}
        words: list[int] = []
        counts = []
        for passage in spans.corpus:
            own = [self._stems.setdefault(stem_key(word), len(self._stems)) for word in spans.pieces(passage)]
            words += own
            counts.append(len(own))
        self._words = np.array([*words, *[0] * len(_SHARES)], dtype=np.int64)
        ends = np.cumsum(counts)
        self._ends, self._counts = ends, np.array(counts)
        owners = spans.owners[:-1]
        first = (ends - counts)[owners] + spans.starts
        self._first: Ints = np.append(first, 0)
        """``[V + 1]`` where in all words each span begins; DONE has no word."""
        self._left: Ints = np.append(ends[owners] - first, 0)
        """``[V + 1]`` words of its passage from there on."""
        held = np.unique(np.stack((np.repeat(np.arange(len(counts)), counts), words)), axis=1)[1]
        holders = np.bincount(held, minlength=len(self._stems))
        self._worth: Floats = np.log((len(counts) + 1) / (holders + 1))

    def spread(
        self, query: str, weights: Mapping[int, float], evidence: Sequence[int] = ()
    ) -> tuple[Ints, Floats]:
        """The spans of some passages, and what each weighs.

        Args:
            query: What is asked.
            weights: Of passages by number; N stands for DONE.
            evidence: Numbers of the passages found so far: their words count as those of the query do, for
                what a hop is to find is often named there alone.

        Returns:
            ``[n]`` spans, and ``[n]`` weights; those of a passage sum to its own.
        """
        passages = np.array(list(weights), dtype=np.int64)
        spans = self.spans.of(passages)
        scores = self._common(query, evidence, spans) / self.temperature
        counts = np.diff(np.append(np.flatnonzero(np.diff(self.spans.owners[spans], prepend=-1)), len(spans)))
        starts = np.cumsum(counts) - counts
        masses = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
        masses /= np.repeat(np.add.reduceat(masses, starts), counts)
        return spans, masses * np.repeat(list(weights.values()), counts)

    def _common(self, query: str, evidence: Sequence[int], spans: Ints) -> Floats:
        """``[n]`` what the first words of some spans have in common with query and evidence (nats)."""
        worth = np.zeros(max(len(self._stems), 1))
        asked = [self._stems[stem] for stem in map(stem_key, pieces(query)) if stem and stem in self._stems]
        worth[asked] = self._worth[asked]
        for passage in evidence:
            held = self._words[self._ends[passage] - self._counts[passage] : self._ends[passage]]
            worth[held] = self._worth[held]
        if "" in self._stems:
            worth[self._stems[""]] = 0.0
        first, left = self._first[spans], self._left[spans]
        found: Floats = np.zeros(len(spans))
        for n, share in enumerate(_SHARES):
            found += share * np.where(left > n, worth[self._words[first + n]], 0.0)
        return found
