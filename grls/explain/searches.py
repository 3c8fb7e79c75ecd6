"""The searches and exact scores of one model input, each computed once.

Several gold passages of a query, and several beam widths, share them. Passages are numbers here.

A bias b of DONE shifts its log-odds, as in :class:`grls.retrieve.hops.stop.DoneByLogOdds`: DONE's
score is then s + b - log Z, the score of every other passage s - log Z. Z is the same for all, so it is left
out here: DONE's score is s + b, and other scores stay s. Orders and differences equal those of the biased
search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from grls.decode import Decoder, ScoredPassage
from grls.decode.prior import Prior
from grls.decode.trace import PassageScore, SearchTrace, score_passages, trace


class Score(NamedTuple):
    """The scores of a passage, bias included.

    Attributes:
        score: Score in the decoder (nats).
        complete: Log-probability (nats) of the whole passage.
    """

    score: float
    complete: float


class Searches:
    """Searches and scores of one model input.

    Args:
        decoder: The decoder with the user's options.
        model_input: Token ids.
        k: Passages to return.
        exclude: Numbers of excluded passages.
        bias: Passage -> bias added to its score (nats); only DONE has one. As in dynamic retrieval, a search
            with a bias takes all ``beams`` passages, adds the bias and keeps the best k.
        prior: The prior that looks ahead for the generator.
    """

    def __init__(
        self,
        decoder: Decoder,
        model_input: Sequence[int],
        k: int,
        exclude: Sequence[int],
        bias: Mapping[int, float] | None = None,
        prior: Prior | None = None,
    ):
        self.decoder = decoder
        self.model_input = list(model_input)
        self.k = k
        self.exclude = tuple(exclude)
        self.bias = dict(bias or {})
        self.prior = prior
        self._traces: dict[int, SearchTrace] = {}
        self._scores: dict[int, PassageScore] = {}
        self._every: dict[int, float] | None = None

    def at(self, beams: int) -> SearchTrace:
        """The search with this beam width; its results include the bias."""
        if beams not in self._traces:
            decoder = replace(self.decoder, beams=beams)
            width = max(self.k, beams) if self.bias else self.k
            search = trace(decoder, self.model_input, width, self.exclude, self.prior)
            self._traces[beams] = search._replace(found=self._weighed(search.found))
        return self._traces[beams]

    def _weighed(self, hits: Sequence[ScoredPassage]) -> tuple[ScoredPassage, ...]:
        weighed = [hit._replace(score=hit.score + self.bias.get(hit.passage, 0.0)) for hit in hits]
        return tuple(sorted(weighed, key=lambda hit: -hit.score)[: self.k])

    @property
    def trace(self) -> SearchTrace:
        """The search with the user's options."""
        return self.at(self.decoder.beams)

    def score(self, passage: int) -> Score:
        """The exact score of a passage that is not excluded."""
        return self.scores([passage])[0]

    def scores(self, passages: Sequence[int]) -> list[Score]:
        """The exact scores of passages that are not excluded."""
        shifts = [self.bias.get(p, 0.0) for p in passages]
        exact = self.forced(passages)
        return [Score(e.score + b, e.complete + b) for e, b in zip(exact, shifts, strict=True)]

    def forced(self, passages: Sequence[int]) -> list[PassageScore]:
        """The model's token scores of passages that are not excluded, without a bias."""
        unknown = [p for p in dict.fromkeys(passages) if p not in self._scores]
        if unknown:
            scored = score_passages(self.decoder, self.model_input, unknown, self.exclude, prior=self.prior)
            self._scores.update(zip(unknown, scored, strict=True))
        return [self._scores[p] for p in passages]

    def every(self) -> dict[int, float]:
        """Log-probability (nats) of every whole passage that is not excluded, including DONE."""
        if self._every is None:
            rows = self.decoder.index.rows.row_of
            hidden = {int(rows[p]) for p in self.exclude}
            open_ = [p for p in range(len(rows)) if int(rows[p]) not in hidden]
            # One passage stands for all with equal tokens; in order of rows, so that neighbours are alike.
            first = {int(rows[p]): p for p in reversed(open_)}
            scored = score_passages(
                self.decoder, self.model_input, list(first.values()), self.exclude, 0, self.prior
            )
            by_row = dict(zip(first, (score.complete for score in scored), strict=True))
            self._every = {p: by_row[int(rows[p])] + self.bias.get(p, 0.0) for p in open_}
        return self._every

    def excluded(self, passage: int) -> bool:
        """Whether a passage, or another one with equal tokens, is excluded."""
        rows = self.decoder.index.rows.row_of
        return int(rows[passage]) in {int(rows[p]) for p in self.exclude}

    def twins(self, passage: int) -> list[int]:
        """Other passages with equal tokens."""
        rows = self.decoder.index.rows.row_of
        return [int(p) for p in np.flatnonzero(rows == rows[passage]) if p != passage]

    def last(self, hits: Sequence[ScoredPassage]) -> float:
        """The score to exceed for a place among the results: the k-th score, ``-inf`` for fewer results."""
        return hits[-1].score if len(hits) == self.k else -np.inf
