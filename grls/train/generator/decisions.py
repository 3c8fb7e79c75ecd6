"""Passages as paths through the trie: the decisions on each path, with targets and the tokens taken.

Legend: P paths, D decisions, A allowed tokens of all decisions together, T tokens taken. A decision is a
prefix with more than one allowed token; other prefixes have no loss under ``renormalized`` scores. Paths
of a hop share the decisions of their common prefixes. A path ends where one sequence is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats

_NOTHING = 1e-9
"""A smaller mass of a target under a prefix is a rounding error of a difference of sums."""


class PassageTarget(NamedTuple):
    """The target of a hop: a distribution q over passages.

    The next token c of a prefix of the trie has the target

        q(c | prefix) = sum of q over the passages under prefix c / sum of q over those under the prefix.

    The sums are differences of cumulative sums, since a prefix is a range of sorted rows. Under
    ``renormalized`` scores

        sum over passages p of q(p) (-log P(p)) = E over p from q of the sum over decisions on p's path of
                                                  the cross-entropy of q(. | prefix) and P(. | prefix)

    so paths drawn from q, with weights that correct for the draw, give an unbiased estimate of the loss.

    Attributes:
        rows: Distinct rows of the index, ascending.
        sums: Cumulative probabilities of the rows, with a zero in front.
    """

    rows: Ints
    sums: Floats

    @classmethod
    def of(cls, index: ConstraintIndex, passages: Ints, weights: Floats) -> PassageTarget:
        """Make a target from distinct passages or spans ``[n]``, by number, and positive weights ``[n]``."""
        rows, inverse = np.unique(
            np.asarray(index.rows.row_of)[passages].astype(np.int64), return_inverse=True
        )
        mass = np.bincount(inverse, weights)
        return cls(rows, np.concatenate(([0.0], np.cumsum(mass / mass.sum()))))

    def under(self, low: Ints, high: Ints) -> Floats:
        """Probability of the rows of each range ``[low, high)``."""
        masses: Floats = (
            self.sums[np.searchsorted(self.rows, high)] - self.sums[np.searchsorted(self.rows, low)]
        )
        return masses


Gains = Callable[[Ints, Ints, Ints], Floats]
"""Hops ``[D]`` of decisions, states ``[A]`` of their allowed tokens and offsets ``[D + 1]`` -> the gain of a
prior that is added to the score of each token (nats), ``[A]``."""


class Path(NamedTuple):
    """A passage that is scored, with the number of its hop and its weight in the loss of the target."""

    hop: int
    passage: int
    weight: float


class Decisions(NamedTuple):
    """Prefixes with more than one allowed token, each prefix of a hop once.

    Attributes:
        paths: ``[D]`` a path through each decision.
        depths: ``[D]`` number of tokens before the decision.
        weights: ``[D]`` weight in the loss.
        owners: ``[A]`` the decision of each allowed token, ascending.
        tokens: ``[A]`` allowed tokens.
        probabilities: ``[A]`` target probabilities; all zero where the target has no mass under the prefix.
        gains: ``[A]`` gain of a prior, added to the score of each allowed token (nats).
        taken: ``[T]`` which of the allowed tokens a path takes.
        takers: ``[T]`` the path that takes it.
    """

    paths: Ints
    depths: Ints
    weights: Floats
    owners: Ints
    tokens: Ints
    probabilities: Floats
    gains: Floats
    taken: Ints
    takers: Ints


def walk_paths(
    index: ConstraintIndex,
    targets: Sequence[PassageTarget],
    paths: Sequence[Path],
    decay: float = 1.0,
    gains: Gains | None = None,
) -> Decisions:
    """Walk paths through the index, all at once.

    ``targets`` has one for each hop. Token n of a passage has the weight ``decay ** n`` in the loss:
    below 1, the first tokens weigh more, which decide what a beam keeps. ``gains``: those of the priors
    for the allowed tokens.
    """
    hops = np.array([path.hop for path in paths], dtype=np.int64)
    shares = np.array([path.weight for path in paths])
    rows = [index.tokens(path.passage) for path in paths]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    states = np.full(len(paths), index.start(), dtype=np.int64)
    parts: list[Decisions] = []  # of each step, with prefixes of one allowed token
    decisions = depth = tokens_before = 0
    while len(live := np.flatnonzero(~index.unique(states) & (lengths > depth))):
        keys = np.stack((hops[live], states[live]), axis=1)
        prefixes, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        group = group.reshape(-1)
        allowed = index.allowed(prefixes[:, 1])
        owners = np.repeat(np.arange(len(prefixes)), np.diff(allowed.offsets))
        taken = np.empty(len(group), dtype=np.int64)  # the token of each path among the allowed ones
        for n, (path, prefix) in enumerate(zip(live.tolist(), group.tolist(), strict=True)):
            begin, end = allowed.offsets[prefix], allowed.offsets[prefix + 1]
            taken[n] = begin + np.searchsorted(allowed.tokens[begin:end], rows[path][depth])
        gained: Floats = np.zeros(len(owners))
        if gains is not None:
            gained = gains(prefixes[:, 0], allowed.states, allowed.offsets)
        parts.append(
            Decisions(
                live[first],
                np.full(len(prefixes), depth),
                np.bincount(group, shares[live]).astype(np.float64) * decay**depth,
                owners + decisions,
                allowed.tokens,
                _conditional(index, targets, prefixes[:, 0], owners, allowed.states),
                gained,
                taken + tokens_before,
                live,
            )
        )
        states[live] = allowed.states[taken]
        decisions += len(prefixes)
        tokens_before += len(owners)
        depth += 1
    none = np.empty(0, dtype=np.int64)
    if not parts:
        return Decisions(none, none, np.empty(0), none, none, np.empty(0), np.empty(0), none, none)
    ways, depths, weights, owners, tokens, probabilities, gained, taken, takers = (
        np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    )
    several = np.bincount(owners, minlength=len(ways)) > 1  # prefixes of one allowed token are left out
    number = np.cumsum(several) - 1
    chosen = several[owners]
    left = chosen[taken]
    return Decisions(
        ways[several], depths[several], weights[several], number[owners[chosen]], tokens[chosen],
        probabilities[chosen], gained[chosen], (np.cumsum(chosen) - 1)[taken[left]], takers[left],
    )  # fmt: skip


def _conditional(
    index: ConstraintIndex, targets: Sequence[PassageTarget], hops: Ints, owners: Ints, states: Ints
) -> Floats:
    """``[A]`` the target's probability of each allowed token at its decision."""
    low, high = index.span(states)
    mass = np.empty(len(owners))
    ends = np.searchsorted(owners, np.arange(len(hops) + 1))
    for n, hop in enumerate(hops.tolist()):
        part = slice(ends[n], ends[n + 1])
        mass[part] = targets[hop].under(low[part], high[part])
    total = np.bincount(owners, mass, minlength=len(hops))[owners]
    shares: Floats = np.where(total > _NOTHING, mass / np.maximum(total, _NOTHING), 0.0)
    return shares
