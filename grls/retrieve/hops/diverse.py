"""First-hop diversity: at most n of the chains that go on begin with the same passage.

Without a limit, the continuations of one likely first passage may take all places of a chain search, and
everything after another first passage is lost. The module knows no scores: chains come best first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Kept = TypeVar("Kept")


def limit_per_first(
    chains: Sequence[Kept], first: Callable[[Kept], Hashable], limit: int | None
) -> list[Kept]:
    """The chains, best first, without those whose first passage has enough better ones.

    Args:
        chains: The chains of one query, best first.
        first: The first passage of a chain.
        limit: Largest number of chains with the same first passage; None: no limit.
    """
    if limit is None:
        return list(chains)
    count: Counter[Hashable] = Counter()
    kept = []
    for chain in chains:
        begins = first(chain)
        count[begins] += 1
        if count[begins] <= limit:
            kept.append(chain)
    return kept
