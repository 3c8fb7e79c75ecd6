"""The readable reference of a backend."""

from __future__ import annotations

from typing import Self

import numpy as np

from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows

Prefix = tuple[int, ...]


class FlatIndex(Segment):
    """A dictionary from prefix to next tokens; a state is the running number of its prefix.

    Algorithm 2 of "Generative Retrieval for Long Sequences" (arXiv 2204.13596): every prefix of every passage
    is a key, so a step takes one look-up. It takes hundreds of bytes a token, and stores nothing: loading
    builds it again of the rows.
    """

    backend = "flat"

    def __init__(self, rows: Rows):
        super().__init__(rows)
        self.following: dict[Prefix, list[int]] = {(): []}
        self._number: dict[Prefix, int] = {(): 0}
        self._prefixes: list[Prefix] = [()]
        self._spans: list[list[int]] = [[0, len(rows)]]
        for r in range(len(rows)):
            sequence = tuple(rows.row(r).tolist())
            for length, token in enumerate(sequence):
                prefix, longer = sequence[:length], sequence[: length + 1]
                if longer not in self._number:
                    self.following[prefix].append(token)
                    self.following[longer] = []
                    self._number[longer] = len(self._prefixes)
                    self._prefixes.append(longer)
                    self._spans.append([r, r])
                self._spans[self._number[longer]][1] = r + 1

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        return cls(rows)

    def arrays(self) -> dict[str, Array]:
        return {}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        return cls(rows)

    def start(self) -> int:
        return 0

    def allowed(self, states: Ints) -> Allowed:
        following = [self._following(int(state)) for state in states]
        pairs = np.array([pair for tokens in following for pair in tokens], dtype=np.int64).reshape(-1, 2)
        offsets = np.cumsum([0, *map(len, following)], dtype=np.int64)
        return Allowed(pairs[:, 0], pairs[:, 1], offsets)

    def _following(self, state: int) -> list[tuple[int, int]]:
        """The tokens that may follow a state, ascending, and the state after each."""
        prefix = self._prefixes[state]
        return [(token, self._number[(*prefix, token)]) for token in self.following[prefix]]

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        spans = np.array([self._spans[s] for s in states], dtype=np.int64).reshape(-1, 2)
        return spans[:, 0], spans[:, 1]
