"""The passages that are worth ranking after a search for spans, in tiers.

Legend: N passages, R rows, n queries that are asked together, C candidates of a query.

The candidates of the first tier are those of a fixed number of rows. Only where these hold fewer passages
than are asked for, a further tier follows, of more rows. So no score and no place depends on how many
passages are asked for. The module knows nothing of models, and no score of a passage but those of priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grls.data.spans import Spans
from grls.decode.frontier import Frontier
from grls.index.rows import Ints, SortedRows
from grls.index.subset import Subset
from grls.models.base import Floats

_ROWS, _OF_PRIORS = 1000, 100
"""Of how many likeliest rows, and best passages of the priors, the first tier of candidates is."""

_WIDER = 4
"""How many times as many a further tier reads."""


class SpanCandidates(NamedTuple):
    """The passages that are ranked for a query.

    Attributes:
        passages: ``[C]`` their numbers, ascending; number N is DONE.
        tiers: ``[C]`` the tier of each, 0 for the first one.
    """

    passages: Ints
    tiers: Ints


class Reach:
    """The passages and spans that a query may retrieve.

    Args:
        spans: All spans.
        rows: The rows of their index.
        gone: Numbers of passages (N: DONE) that the query may not retrieve.
        subset: The spans that it may retrieve; None: all.
    """

    def __init__(self, spans: Spans, rows: SortedRows, gone: Sequence[int], subset: Subset | None):
        self.spans = spans
        self.rows = rows
        self._gone = np.asarray(gone, dtype=np.int64)
        self._subset = subset

    def among(self, passages: Ints) -> Ints:
        """The passages among these that the query may retrieve (ascending, without repetition)."""
        left = np.setdiff1d(passages, self._gone, assume_unique=True)
        if self._subset is None:
            return left
        first = np.append(self.spans.offsets, len(self.spans))[left]  # its filter takes all spans or none
        return left[self._subset.holds(first)]

    def every(self) -> Ints:
        """All passages that the query may retrieve, ascending; N last if it may retrieve DONE."""
        return self.among(np.arange(len(self.spans.offsets)))

    def holders(self, where: Ints) -> Ints:
        """``[n]`` number of spans of retrievable passages in each row of ``where`` (``[n]``)."""
        first = self.rows.members_before(where)
        counts: Ints = self.rows.members_before(where + 1) - first
        several = np.flatnonzero(counts > 1)
        if not len(several) or (self._subset is None and not len(self._gone)):
            return counts
        shared, back = np.unique(where[several], return_inverse=True)
        held = [self.rows.members_in(row, row + 1) for row in shared.tolist()]
        owners = self.spans.owners[np.concatenate(held)]
        left = np.isin(owners, self.among(np.unique(owners))).astype(np.int64)
        starts = np.cumsum([0, *(len(members) for members in held[:-1])])
        counts[several] = np.add.reduceat(left, starts)[back]
        return counts

    def within(self, low: int, high: int, most: int) -> Ints:
        """The passages with a span in the first ``most`` retrievable rows of ``low:high``."""
        if self._subset is None:
            held = self.rows.members_in(low, min(high, low + most))
        else:
            rows = self._subset.rows.between(low, high)[:most].tolist()
            held = np.concatenate([np.empty(0, np.int64), *(self.rows.members_in(r, r + 1) for r in rows)])
        return np.unique(self.spans.owners[held])


def candidates(frontier: Frontier, reach: Reach, k: int, said: Floats | None = None) -> SpanCandidates:
    """The candidates for the ranking: DONE, and the passages of the likeliest rows of the search.

    Args:
        frontier: Where the search stopped.
        reach: The passages that the query may retrieve.
        k: Number of requested passages, DONE included; there are at least k candidates if the query may
            retrieve as many. The first tiers do not depend on it.
        said: ``[N + 1]`` scores of priors for all passages (nats): their best passages are candidates as
            well.
    """
    done, every = len(reach.spans.offsets) - 1, int(frontier.counts.sum())
    passages = tiers = np.empty(0, dtype=np.int64)
    tier, rows, of_priors = 0, _ROWS, _OF_PRIORS
    while True:
        certain = [np.array([done]), *([] if said is None else [_largest(said, of_priors)])]
        new = np.setdiff1d(_holders(frontier, reach, rows, certain), passages)
        passages, tiers = np.append(passages, new), np.append(tiers, np.full(len(new), tier))
        begun = bool((passages < done).any())  # DONE alone is no tier
        if rows >= every or (begun and len(passages) >= k):
            order = np.argsort(passages)
            return SpanCandidates(passages[order], tiers[order])
        tier, rows, of_priors = tier + begun, rows * _WIDER, of_priors * _WIDER


def _largest(said: Floats, most: int) -> Ints:
    """The numbers of the ``most`` largest scores, in any order."""
    most = min(most, len(said))
    numbers: Ints = np.argpartition(-said, most - 1)[:most]
    return numbers


def _holders(frontier: Frontier, reach: Reach, rows: int, certain: Sequence[Ints]) -> Ints:
    """The retrievable passages among these and those of the likeliest rows, ascending."""
    left, parts = rows, list(certain)
    for leaf in frontier.densest(rows):
        parts.append(reach.within(int(frontier.low[leaf]), int(frontier.high[leaf]), left))
        left -= int(frontier.counts[leaf])
    return reach.among(np.unique(np.concatenate(parts)))
