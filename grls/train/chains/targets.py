"""What a hop is to find: a distribution over passages, and so over what follows every prefix of the trie.

The target of a hop is a distribution q over passages, not one passage: where any order of the evidence is
right, every gold passage that is left is a right next step, and a teacher's opinion of other passages can be
mixed in. At a prefix of the trie it is the distribution of the token that follows,

    q(c | prefix) = sum of q over the passages under prefix c / sum of q over the passages under the prefix,

a difference of cumulative sums, since a prefix is a range of sorted rows. Under ``renormalized`` scores

    sum over passages p of q(p) (-log P(p)) = E over p from q of the sum over decisions on p's path of
                                              the cross-entropy of q(. | prefix) and P(. | prefix)

so paths that are drawn from q, each weighted by how it was drawn, give the whole loss without bias. The
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
        sums: Their cumulative probabilities, with a zero in front.
    """

    rows: Ints
    sums: Floats

    @classmethod
    def of(cls, index: ConstraintIndex, weights: Mapping[int, float]) -> PassageTarget:
        """From positive weights of passages; they are made to sum to one."""
        return cls.weighed(index, np.array(list(weights)), np.array(list(weights.values())))

    @classmethod
    def weighed(cls, index: ConstraintIndex, passages: Ints, weights: Floats) -> PassageTarget:
        """From positive weights ``[n]`` of what has these numbers ``[n]`` in the index; each at most once."""
        rows, place = np.unique(np.asarray(index.rows.row_of)[passages].astype(np.int64), return_inverse=True)
        mass = np.bincount(place, weights)
        return cls(rows, np.concatenate(([0.0], np.cumsum(mass / mass.sum()))))

    def under(self, low: Ints, high: Ints) -> Floats:
        """Probability of the rows of each range ``[low, high)``."""
        found: Floats = (
            self.sums[np.searchsorted(self.rows, high)] - self.sums[np.searchsorted(self.rows, low)]
        )
        return found
