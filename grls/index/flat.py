"""The flattened prefix dictionary: prefix -> next tokens.

Algorithm 2 of "Generative Retrieval for Long Sequences" (arXiv 2204.13596): every prefix of every passage is
a key, so a step takes one look-up. It is the readable reference of the other backends and takes hundreds of
bytes a token. It is not stored: loading builds it again from the rows.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows

Prefix = tuple[int, ...]


class FlatIndex(Segment):
    """A dictionary from prefix to next tokens; a state is the running number of its prefix.

    Args:
        rows: The sorted sequences of the corpus.
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
    def build(cls, rows: Rows, shared: Ints) -> Self:  # noqa: D102
        return cls(rows)

    def start(self) -> int:  # noqa: D102
        return 0

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        tokens: list[int] = []
        children: list[int] = []
        offsets = [0]
        for state in states:
            prefix = self._prefixes[state]
            for token in self.following[prefix]:
                tokens.append(token)
                children.append(self._number[(*prefix, token)])
            offsets.append(len(tokens))
        return Allowed(np.array(tokens, np.int64), np.array(children, np.int64), np.array(offsets, np.int64))

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        spans = np.array([self._spans[s] for s in states], dtype=np.int64).reshape(-1, 2)
        return spans[:, 0], spans[:, 1]

    def arrays(self) -> dict[str, Array]:  # noqa: D102
        return {}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:  # noqa: D102
        return cls(rows)
