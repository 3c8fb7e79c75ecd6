"""How the cross-encoder of a rescored retriever counts, as options."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grls.errors import ConfigError

PASSAGES = 100
"""How many passages are read where nothing else is said."""


@dataclass(frozen=True)
class Rereading:
    """How a cross-encoder's logits count.

    Args:
        passages: How many of the best passages are read (n).
        weight: What a logit counts beside the first retriever's score (w); null: it counts alone.

    Raises:
        ConfigError: The number is below 1, or the weight no finite number.
    """

    passages: int
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.passages < 1:
            raise ConfigError(f"passages must be at least 1, got {self.passages}.")
        if self.weight is not None and not math.isfinite(self.weight):
            raise ConfigError(f"weight must be a finite number, or null, got {self.weight}.")
