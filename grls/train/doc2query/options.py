"""The options of drawing pseudo-queries."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import Count, PositiveFloat, options

PassagesRead = Literal["one", "all", "some"]


@options("draw")
class Drawing:
    """How queries are drawn.

    Args:
        queries: Number of queries for each passage.
        temperature: Sampling temperature; below 1, queries are closer to the likeliest one.
        seed: Seed of all draws.
    """

    queries: Count = 5
    temperature: PositiveFloat = 1.0
    seed: int = 0


USUAL_DRAWING = Drawing()
