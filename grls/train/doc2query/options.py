"""The options of drawing pseudo-queries."""

from __future__ import annotations

from typing import Literal

from grls.errors import ConfigError, Option
from grls.io.arguments import Count, PositiveFloat, options

PassagesRead = Literal["one", "all", "some"]


@options("draw")
class Drawing:
    """How queries are drawn.

    Args:
        queries: Number of queries for each passage.
        temperature: Sampling temperature; below 1, queries are closer to the likeliest one.
        seed: Seed of all draws.
        hops: 1, or 2: a question of two passages, of which the first names or links to the second. An
            instructed language model writes it, not a query generator.
    """

    queries: Count = 5
    temperature: PositiveFloat = 1.0
    seed: int = 0
    hops: Count = 1

    def __post_init__(self) -> None:
        if self.hops > 2:
            raise ConfigError(f"{Option('draw.hops')} must be 1 or 2, got {self.hops}.")


USUAL_DRAWING = Drawing()
