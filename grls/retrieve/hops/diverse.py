"""First-hop diversity: at most n chains that begin with the same passage go on, and at most n are returned.

Without a limit, the continuations of one likely first passage may take all places of a chain search, and
everything after another first passage is lost. The module knows no scores: chains come best first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from grls.errors import ConfigError

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


def refuse_single_chain(limit: int | None, chains: int) -> None:
    """Refuse a limit that has no effect, since one chain is kept.

    Raises:
        ConfigError: There is a limit, and one chain is kept.
    """
    if limit is not None and chains == 1:
        raise ConfigError(
            "hops.per_first limits the kept chains, and one chain is kept: set --hops.chains above 1, or "
            "leave hops.per_first out."
        )
