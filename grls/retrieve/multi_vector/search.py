"""The exact search by MaxSim, in blocks.

Legend: Q queries, L vectors of a query, n passages that are searched, t vectors of a passage, d dimension,
k hits asked for.

All passages are scored in single precision, a block of vectors at a time. All whose scores could belong
among the k best are then scored in double precision, each alone, so equal passages score alike. The module
knows nothing of texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grls.data.filters import Numbers
from grls.models.base import Floats
from grls.models.biencoder import Matrix
from grls.retrieve.encoded.ranking import top
from grls.retrieve.multi_vector.vectors import TokenVectors, bounds_of

BLOCK = 1 << 14
"""Vectors of passages that are compared together: 8 MiB of 128 numbers each."""

_SLACK = 1e-5
"""How far single precision may be off, relative to the lengths of the vectors."""


def maxsim(query: Floats, passage: Floats) -> float:
    """Sum over a query's vectors ``[L, d]`` of the largest inner product with a passage's ``[t, d]``.

    It defines what :class:`MaxSimSearch` ranks by.
    """
    return float((query @ passage.T).max(axis=1).sum())


@dataclass(frozen=True)
class MaxSimSearch:
    """Finds the passages of largest MaxSim.

    Args:
        tokens: The vectors of the passages.
        mean: Divide the sum over a query's vectors by their number.
    """

    tokens: TokenVectors
    mean: bool = False

    @property
    def known(self) -> Numbers:
        """The numbers of the passages that have a vector, ascending."""
        return np.flatnonzero(np.diff(self.tokens.bounds) > 0)

    def best(self, queries: list[Matrix], k: int, numbers: Numbers) -> list[tuple[Numbers, Floats]]:
        """The k best passages of each query, equal scores by number; their scores.

        Args:
            queries: ``[L, d]`` vectors of each query.
            k: Largest number of passages.
            numbers: ``[n]`` numbers of the allowed passages, ascending; each has a vector.
        """
        scores, longest = self.single(queries, numbers)
        return [self._exact(*pair, numbers, longest, k) for pair in zip(queries, scores, strict=True)]

    def single(self, queries: list[Matrix], numbers: Numbers) -> tuple[Floats, float]:
        """``[Q, n]`` scores in single precision, and the length of the longest vector of a passage.

        Arguments are those of :meth:`best`.
        """
        stacked = np.concatenate([np.empty((0, self.tokens.vectors.shape[1]), np.float32), *queries])
        starts, longest = bounds_of([len(query) for query in queries]), 0.0
        scores = np.zeros((len(queries), len(numbers)))
        for first, last, rows, bounds in self._blocks(numbers):
            nearest = np.maximum.reduceat(stacked @ rows.T, bounds[:-1], axis=1)  # [all L, n]
            sums = np.concatenate([np.zeros((1, last - first)), np.cumsum(nearest, axis=0, dtype=np.float64)])
            scores[:, first:last] = sums[starts[1:]] - sums[starts[:-1]]
            longest = max(longest, float(np.einsum("td,td->t", rows, rows).max()))
        divisors = [self._divisor(query) for query in queries]
        return scores / np.array(divisors)[:, None], math.sqrt(longest)

    def _blocks(self, numbers: Numbers) -> Iterator[tuple[int, int, Matrix, Numbers]]:
        """Blocks of whole passages: first and last passage, their vectors, and the bounds in these."""
        begins, ends = self.tokens.bounds[numbers], self.tokens.bounds[numbers + 1]
        before = np.concatenate([[0], np.cumsum(ends - begins)])
        first = 0
        while first < len(numbers):
            last = max(int(np.searchsorted(before, before[first] + BLOCK, side="right")) - 1, first + 1)
            bounds = before[first : last + 1] - before[first]
            if ends[last - 1] - begins[first] == bounds[-1]:  # they lie side by side
                rows = self.tokens.vectors[begins[first] : ends[last - 1]]
            else:
                places = np.repeat(begins[first:last] - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
                rows = self.tokens.vectors[places]
            yield first, last, rows, bounds
            first = last

    def _exact(
        self, query: Matrix, scores: Floats, numbers: Numbers, longest: float, k: int
    ) -> tuple[Numbers, Floats]:
        """The k best in double precision, among passages whose single-precision scores are high enough."""
        if len(scores) > k:
            lengths = float(np.linalg.norm(query, axis=1).sum())
            slack = _SLACK * lengths * longest / self._divisor(query)
            numbers = numbers[scores >= np.partition(scores, -k)[-k] - slack]
        wide = query.astype(np.float64)
        exact = np.empty(len(numbers))
        for place, number in enumerate(numbers.tolist()):
            begin, end = self.tokens.bounds[number : number + 2]
            exact[place] = maxsim(wide, self.tokens.vectors[begin:end].astype(np.float64))
        return top(exact / self._divisor(query), numbers, k)

    def _divisor(self, query: Matrix) -> int:
        return max(len(query), 1) if self.mean else 1
