"""The options of drawing pseudo-queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import at_least, bounded
from grls.io.recipes import rare

PassagesRead = Literal["one", "all", "some"]


@dataclass(frozen=True)
class Drawing:
    """How queries are drawn.

    Args:
        queries: Number of queries for each passage.
        temperature: Sampling temperature; below 1, queries are closer to the likeliest one.
        top_p: Nucleus sampling: tokens are drawn from the likeliest ones with this total probability (0 to
            1).
        seed: Seed of all draws.
    """

    queries: int = 5
    temperature: float = rare(1.0)
    top_p: float = rare(0.95)
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, "draw.", queries=self.queries)
        bounded("(0, inf)", "draw.", temperature=self.temperature)
        bounded("(0, 1]", "draw.", top_p=self.top_p)


USUAL_DRAWING = Drawing()
