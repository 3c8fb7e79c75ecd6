"""What a hop is to find: a distribution over passages, and what it makes of every decision of the trie.

Legend: D decisions, A allowed tokens of all decisions together, P paths.

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

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats


class Target(NamedTuple):
    """A distribution over passages.

    Attributes:
        rows: Distinct rows of the index, ascending.
        sums: Their cumulative probabilities, with a zero in front.
    """

    rows: Ints
    sums: Floats

    @classmethod
    def of(cls, index: ConstraintIndex, weights: Mapping[int, float]) -> Target:
        """From positive weights of passages; they are made to sum to one."""
        rows, place = np.unique(
            np.asarray(index.rows.row_of)[list(weights)].astype(np.int64), return_inverse=True
        )
        mass = np.bincount(place, list(weights.values()))
        return cls(rows, np.concatenate(([0.0], np.cumsum(mass / mass.sum()))))

    def under(self, low: Ints, high: Ints) -> Floats:
        """Probability of the rows of each range ``[low, high)``."""
        found: Floats = (
            self.sums[np.searchsorted(self.rows, high)] - self.sums[np.searchsorted(self.rows, low)]
        )
        return found


class Path(NamedTuple):
    """A passage whose decisions are trained.

    Attributes:
        hop: Which of the targets it belongs to.
        passage: Its number.
        weight: Of its decisions in the loss.
    """

    hop: int
    passage: int
    weight: float


class Decisions(NamedTuple):
    """Places with more than one allowed token, each prefix of a hop once.

    Attributes:
        paths: ``[D]`` a path that each lies on.
        places: ``[D]`` tokens of the passage before it.
        weights: ``[D]`` in the loss.
        owners: ``[A]`` the decision that each allowed token belongs to, ascending.
        tokens: ``[A]`` allowed tokens.
        probabilities: ``[A]`` the target.
    """

    paths: Ints
    places: Ints
    weights: Floats
    owners: Ints
    tokens: Ints
    probabilities: Floats


def decide(index: ConstraintIndex, targets: Sequence[Target], paths: Sequence[Path]) -> Decisions:
    """Walk paths through the index, all at once.

    Args:
        index: The constraint index.
        targets: Of each hop.
        paths: Passages, each under some of its hop's target.
    """
    hops = np.array([path.hop for path in paths])
    weights = np.array([path.weight for path in paths])
    rows = [index.tokens(path.passage) for path in paths]
    states = np.full(len(paths), index.start(), dtype=np.int64)
    live = np.arange(len(paths))
    parts: list[Decisions] = []
    place = count = 0
    while len(live := live[~index.unique(states[live])]):
        live = live[[len(rows[n]) > place for n in live]]
        if not len(live):
            break
        keys = np.stack((hops[live], states[live]), axis=1)
        some, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        group = group.reshape(-1)
        allowed = index.allowed(some[:, 1])
        owners = np.repeat(np.arange(len(some)), np.diff(allowed.offsets))
        parts.append(
            Decisions(
                live[first],
                np.full(len(some), place),
                np.bincount(group, weights[live]).astype(np.float64),
                owners + count,
                allowed.tokens,
                _conditional(index, targets, some[:, 0], owners, allowed.states),
            )
        )
        count += len(some)
        for n, at in zip(live.tolist(), group.tolist(), strict=True):
            begin, end = allowed.offsets[at], allowed.offsets[at + 1]
            states[n] = allowed.states[begin + np.searchsorted(allowed.tokens[begin:end], rows[n][place])]
        place += 1
    return _open(parts)


def _conditional(
    index: ConstraintIndex, targets: Sequence[Target], hops: Ints, owners: Ints, states: Ints
) -> Floats:
    """``[A]`` the target's probability of each allowed token at its decision."""
    low, high = index.span(states)
    mass = np.empty(len(owners))
    ends = np.searchsorted(owners, np.arange(len(hops) + 1))
    for n, hop in enumerate(hops.tolist()):
        some = slice(ends[n], ends[n + 1])
        mass[some] = targets[hop].under(low[some], high[some])
    total = np.bincount(owners, mass, minlength=len(hops))
    found: Floats = mass / total[owners]
    return found


def _open(parts: Sequence[Decisions]) -> Decisions:
    """All decisions, those with one allowed token left out."""
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Decisions(none, none, np.empty(0), none, none, np.empty(0))
    paths, places, weights, owners, tokens, probabilities = (
        np.concatenate(some) for some in zip(*parts, strict=True)
    )
    several = np.bincount(owners, minlength=len(paths)) > 1
    number = np.cumsum(several) - 1
    kept = several[owners]
    return Decisions(
        paths[several], places[several], weights[several], number[owners[kept]], tokens[kept],
        probabilities[kept],
    )  # fmt: skip
