"""The chains of ranked hops: which are one, and which go on."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from grls.data.types import Chain, Hit
from grls.retrieve.hops.diverse import limit_per_first
from grls.retrieve.hops.tail import to_nine_digits


class RankedChain(NamedTuple):
    """A chain so far.

    Attributes:
        query: Index of its query.
        ids: Its passages, in order.
        weight: Its probability.
        shares: The probability of each passage, given those before it.
        among: The log-probability of each passage among the hits of its hop alone.
        first: The best score of the first hop.
    """

    query: int
    ids: tuple[str, ...]
    weight: float
    shares: tuple[float, ...] = ()
    among: tuple[float, ...] = ()
    first: float = 0.0


class Sets:
    """The chains of one query after a hop, those of the same passages as one."""

    def __init__(self) -> None:
        self._likeliest: dict[frozenset[str], RankedChain] = {}
        self._weights: dict[frozenset[str], float] = {}
        self.total = 0.0

    def add(self, chain: RankedChain) -> None:
        """Add a chain; chains of the same passages are merged into the likeliest order."""
        key = frozenset(chain.ids)
        self._weights[key] = self._weights.get(key, 0.0) + chain.weight
        known = self._likeliest.get(key)
        if known is None or chain.weight > known.weight:
            self._likeliest[key] = chain

    def likeliest(self, count: int, per_first: int | None) -> list[RankedChain]:
        """The likeliest chains, scaled to the weight ``total`` of all chains.

        Args:
            count: Largest number of chains.
            per_first: Largest number of chains with the same first passage; None: no limit.
        """
        merged = [one._replace(weight=self._weights[key]) for key, one in self._likeliest.items()]
        chains = sorted(merged, key=lambda chain: -to_nine_digits(chain.weight))
        best = limit_per_first(chains, lambda chain: chain.ids[0], per_first)[:count]
        kept = sum(chain.weight for chain in best)
        if not kept > 0:
            return []
        return [chain._replace(weight=chain.weight * self.total / kept) for chain in best]


def as_chains(kept: Sequence[Collection[RankedChain]]) -> list[list[Chain]]:
    """The chains of each query, the likeliest first; an empty one where nothing was found."""
    return [
        [Chain(tuple(map(Hit, one.ids, one.shares)), math.prod(one.shares), False) for one in chains]
        or [Chain((), 0.0, False)]
        for chains in kept
    ]
