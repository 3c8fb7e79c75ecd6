"""What every single-step retriever can do.

A retriever gets queries and returns passages; whether it decodes them, looks words up or compares
vectors is its own affair. The protocol knows nothing of hops: a multi-step retriever wraps or extends
one of these and returns chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from grls.errors import ConfigError
from grls.types import Hit, Query


class Retriever(Protocol):
    """Single-step retrieval over one corpus."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """The top-k distinct passages of each query, best first.

        Args:
            queries: The queries; the result is in the same order.
            k: Most hits a query, at least 1. A corpus with fewer passages gives fewer hits, and so
                does a query that fewer passages match: a passage is never invented to fill the list.

        Returns:
            One list a query. Scores never rise along a list; what they mean is the retriever's to say.
        """
        ...


def check_counts(**counts: int) -> None:
    """Refuse counts below 1, by the name of their option.

    Raises:
        ConfigError: One is.
    """
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")
