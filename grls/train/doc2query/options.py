"""The options of writing pseudo-queries: how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import ConfigError

From = Literal["first", "all"]


@dataclass(frozen=True)
class Drawing:
    """How queries are drawn.

    Args:
        queries: Queries a passage.
        hops: Passages a query.
        reads: The query is written from the ``first`` passage of its chain, or from ``all``; null: all, if
            the generator has learned to read several.
        temperature: Of the draws; below 1 they are nearer to what is likeliest.
        top_p: Draws are from the likeliest tokens that have this probability together.
        seed: Of all draws.

    Raises:
        ConfigError: A count is below 1, or temperature or top_p is out of range.
    """

    queries: int = 5
    hops: int = 1
    reads: From | None = None
    temperature: float = 1.0
    top_p: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.queries < 1 or self.hops < 1:
            raise ConfigError(f"expected queries and hops of at least 1, got {self.queries} and {self.hops}.")
        if not self.temperature > 0 or not 0 < self.top_p <= 1:
            raise ConfigError(
                "expected a temperature above 0 and top_p above 0 and at most 1, got "
                f"{self.temperature} and {self.top_p}."
            )


USUAL_DRAWING = Drawing()
