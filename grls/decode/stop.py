"""When a prefix needs no further step, and which passages may not be found.

Without early stop a prefix is finished when it has written the end token. With it, a prefix is finished
as soon as one passage is left under it: under ``renormalized`` scores every further token has probability
one, so this changes no score.

Excluded rows (a chain's earlier hops, DONE) are subtracted from the range of rows a state covers: a state
whose rows are all excluded is not allowed, so exclusion makes no dead end either.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grls.index import ConstraintIndex
from grls.index.rows import Ints

Mask = npt.NDArray[np.bool_]


class Exclusion:
    """The rows that each query of a batch may not find.

    Args:
        index: The constraint index.
        passages: For each query, the numbers of passages it may not find (with all their duplicates).
    """

    def __init__(self, index: ConstraintIndex, passages: Sequence[Sequence[int]]):
        pairs = {(q, int(index.rows.row_of[p])) for q, some in enumerate(passages) for p in some}
        self._stride = len(index.rows) + 1
        # One sorted list for all queries: row r of query q stands at q * stride + r.
        self._keys = np.array(sorted(q * self._stride + row for q, row in pairs), dtype=np.int64)

    def remaining(self, queries: Ints, low: Ints, high: Ints) -> Ints:
        """Rows of ``low[i]:high[i]`` that query ``queries[i]`` may find, counted."""
        if not len(self._keys):
            return high - low
        base = queries * self._stride
        hidden = np.searchsorted(self._keys, base + high) - np.searchsorted(self._keys, base + low)
        return high - low - hidden

    def concerns(self, queries: Ints) -> bool:
        """Whether any of some queries may not find something."""
        first = np.searchsorted(self._keys, queries * self._stride)
        return bool((np.searchsorted(self._keys, (queries + 1) * self._stride) > first).any())

    def allows(self, query: int, row: int) -> bool:
        """Whether a query may find a row."""
        one = np.array([query]), np.array([row]), np.array([row + 1])
        return bool(self.remaining(*one)[0])


def finished(tokens: Ints, remaining: Ints, end: int, early_stop: bool) -> Mask:
    """Which candidates are complete once their token is written.

    Args:
        tokens: ``[A]`` the candidates' tokens.
        remaining: ``[A]`` rows left under each.
        end: The end token.
        early_stop: Stop at the unique prefix.
    """
    ended: Mask = tokens == end
    return ended | (remaining == 1) if early_stop else ended
