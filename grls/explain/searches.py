"""The searches and exact scores of one model input, each computed once.

Several gold passages of a query, and several beam widths, share them. It knows passages by their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grls.decode import Decoder, Found
from grls.decode.trace import PassageScore, Trace, score_passages, trace


class Searches:
    """Everything that is asked of one model input.

    Args:
        decoder: The search as the user runs it.
        model_input: Token ids.
        k: Passages to return.
        exclude: Numbers of passages that may not be found.
    """

    def __init__(self, decoder: Decoder, model_input: Sequence[int], k: int, exclude: Sequence[int]):
        self.decoder = decoder
        self.model_input = list(model_input)
        self.k = k
        self.exclude = tuple(exclude)
        self._traces: dict[int, Trace] = {}
        self._scores: dict[int, PassageScore] = {}
        self._every: dict[int, float] | None = None

    def at(self, beams: int) -> Trace:
        """The search with this beam width."""
        if beams not in self._traces:
            decoder = replace(self.decoder, beams=beams)
            self._traces[beams] = trace(decoder, self.model_input, self.k, self.exclude)
        return self._traces[beams]

    @property
    def trace(self) -> Trace:
        """The search as the user runs it."""
        return self.at(self.decoder.beams)

    def score(self, passage: int) -> PassageScore:
        """The exact score of a passage that is not excluded."""
        return self.scores([passage])[0]

    def scores(self, passages: Sequence[int]) -> list[PassageScore]:
        """The exact scores of some passages that are not excluded."""
        unknown = [p for p in dict.fromkeys(passages) if p not in self._scores]
        if unknown:
            found = score_passages(self.decoder, self.model_input, unknown, self.exclude)
            self._scores.update(zip(unknown, found, strict=True))
        return [self._scores[p] for p in passages]

    def every(self) -> dict[int, float]:
        """The log-probability (nats) of every whole passage that may be found, DONE among them."""
        if self._every is None:
            rows = self.decoder.index.rows.row_of
            hidden = {int(rows[p]) for p in self.exclude}
            open_ = [p for p in range(len(rows)) if int(rows[p]) not in hidden]
            # One passage stands for all of equal tokens; order of rows, so that lengths are alike.
            first = {int(rows[p]): p for p in reversed(open_)}
            found = score_passages(
                self.decoder, self.model_input, list(first.values()), self.exclude, rivals=0
            )
            by_row = dict(zip(first, (score.complete for score in found), strict=True))
            self._every = {p: by_row[int(rows[p])] for p in open_}
        return self._every

    def excluded(self, passage: int) -> bool:
        """Whether a passage, or another one of equal tokens, is excluded."""
        rows = self.decoder.index.rows.row_of
        return int(rows[passage]) in {int(rows[p]) for p in self.exclude}

    def twins(self, passage: int) -> list[int]:
        """Other passages of equal tokens."""
        rows = self.decoder.index.rows.row_of
        return [int(p) for p in np.flatnonzero(rows == rows[passage]) if p != passage]

    def last(self, found: Sequence[Found]) -> float:
        """Score that a passage must exceed to enter a result: the k-th one's, ``-inf`` where it has fewer."""
        return found[-1].score if len(found) == self.k else -np.inf
