"""The priors of hybrid decoding, as options. Light to import: command lines are made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from grls.errors import ConfigError

DONE_SHARE = math.log(0.5)
"""What DONE gets of a prior that knows nothing of it (nats): as much as all passages together."""


@dataclass(frozen=True)
class PriorSpec:
    """A prior as it is named.

    Args:
        retriever: The folder of a retriever over the same corpus that scores all passages (a bi-encoder), or
            ``bm25``, or an embedded specification.
        weight: What it counts beside the generator (w); negative takes back.
        temperature: What its scores are divided by (T); null: 0.05 for a bi-encoder of unit vectors, 1 for
            another, 2 for BM25.

    Raises:
        ConfigError: The weight is no finite number, or the temperature not above 0.
    """

    retriever: str | dict[str, Any]
    weight: float = 1.0
    temperature: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise ConfigError(f"the weight of {self.retriever} must be a finite number, got {self.weight}.")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ConfigError(f"the temperature of {self.retriever} must be above 0, got {self.temperature}.")


@dataclass(frozen=True)
class PriorOptions:
    """How priors are taken together.

    Args:
        empty_weight: How much of a passage's log-probability under an empty prompt is taken from its score,
            against what the generator favours whatever is asked.
        done_share: Log of DONE's share of every prior that does not know it (nats, below 0).
        normalized: Normalize the sums of scores at every token, for a generator that was trained beside these
            priors (``--data.prior``) with these weights.

    Raises:
        ConfigError: ``empty_weight`` is below 0 or no finite number, or ``done_share`` not below 0.
    """

    empty_weight: float = 0.0
    done_share: float = DONE_SHARE
    normalized: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.empty_weight < math.inf:
            raise ConfigError(f"empty_weight must be a finite number, at least 0, got {self.empty_weight}.")
        if not -math.inf < self.done_share < 0:
            raise ConfigError(f"done_share must be a finite number below 0 (nats), got {self.done_share}.")
