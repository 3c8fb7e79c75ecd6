"""The target of a hop: a distribution over passages, and so over the next token of every prefix of the trie.

The target is a distribution q over passages, not a single passage. Where any order of the evidence is right,
every remaining gold passage is a right next step, and the opinion of a teacher can be mixed in. At a prefix
of the trie, the target of the next token c is

    q(c | prefix) = sum of q over the passages under prefix c / sum of q over the passages under the prefix.

The sums are differences of cumulative sums, since a prefix is a range of sorted rows. Under ``renormalized``
scores

    sum over passages p of q(p) (-log P(p)) = E over p from q of the sum over decisions on p's path of
                                              the cross-entropy of q(. | prefix) and P(. | prefix)

so paths drawn from q, with weights that correct for the draw, give an unbiased estimate of the loss. The
module knows nothing of models or of trees of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats


class PassageTarget(NamedTuple):
    """A distribution over passages.

    Attributes:
        rows: Distinct rows of the index, ascending.
        sums: Cumulative probabilities of the rows, with a zero in front.
    """

    rows: Ints
    sums: Floats

    @classmethod
    def of(cls, index: ConstraintIndex, weights: Mapping[int, float]) -> PassageTarget:
        """Make a target from positive weights of passages, normalised to sum to one."""
        return cls.weighed(index, np.array(list(weights)), np.array(list(weights.values())))

    @classmethod
    def weighed(cls, index: ConstraintIndex, passages: Ints, weights: Floats) -> PassageTarget:
        """Make a target from distinct passages or spans ``[n]``, by number, and positive weights ``[n]``."""
        rows, place = np.unique(np.asarray(index.rows.row_of)[passages].astype(np.int64), return_inverse=True)
        mass = np.bincount(place, weights)
        return cls(rows, np.concatenate(([0.0], np.cumsum(mass / mass.sum()))))

    def under(self, low: Ints, high: Ints) -> Floats:
        """Probability of the rows of each range ``[low, high)``."""
        masses: Floats = (
            self.sums[np.searchsorted(self.rows, high)] - self.sums[np.searchsorted(self.rows, low)]
        )
        return masses
