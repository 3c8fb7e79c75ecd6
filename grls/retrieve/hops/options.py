"""How retrieval goes hop by hop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from grls.data.types import Steps
from grls.errors import ConfigError

Choice = Literal["likeliest", "expected-f1"]
CHOICES: tuple[Choice, ...] = get_args(Choice)

HopSteps = Literal["single", "fixed", "dynamic", "ranked"]


@dataclass(frozen=True)
class HopOptions:
    """How retrieval goes hop by hop.

    Args:
        steps: ``single``: the top k, no hops; ``fixed``: exactly ``max`` hops; ``dynamic``: hops until DONE;
            ``ranked``: the top k by the probability that a chain of ``max`` hops holds them.
        max: Number of hops (fixed, ranked), most hops (dynamic).
        chains: Chains kept side by side; null: 4 where scores are log-probabilities, else 1 (ranked: 5).
        branch: Passages that continue a chain at each hop; null: 4 where scores are log-probabilities, else
            as many as ``chains``.
        done_bias: Added to the log-odds of DONE at every hop (of a bi-encoder: to its score); negative makes
            chains longer.
        repeat: Allow a passage twice in a chain.
        sets: Chains of the same passages in another order are one, whose probability is the sum of theirs.
        choose: Of the chains kept the ``likeliest``; or, of passages of any of them, the set whose F1 is
            highest on average over the chains: ``expected-f1`` (dynamic).
        pool: Rank the passages of all chains, the best chain's first (fixed).
        temperature: Scores of a hop are divided by this before the softmax; null: by what is usual for the
            retriever (ranked).
        evidence: Words that a hop reads of the text of each passage found so far, its first sentence and
            those nearest to the question; 0: all that the retriever reads (ranked).
        done: DONE ends a chain where the retriever has learned when it follows (ranked).

    Raises:
        ConfigError: A count is not positive, the bias no finite number, or an option needs other steps.
    """

    steps: HopSteps = "single"
    max: int = 20
    chains: int | None = None
    branch: int | None = None
    done_bias: float = 0.0
    repeat: bool = False
    sets: bool = False
    choose: Choice = "likeliest"
    pool: bool = False
    temperature: float | None = None
    evidence: int = 0
    done: bool = True

    @property
    def chained(self) -> Steps:
        """The steps whose hops these are: those of a ranking are of a fixed number."""
        return "fixed" if self.steps == "ranked" else self.steps

    def __post_init__(self) -> None:
        for name, value in (("max", self.max), ("chains", self.chains), ("branch", self.branch)):
            if value is not None and value < 1:
                raise ConfigError(f"hops.{name} must be at least 1, got {value}.")
        if not math.isfinite(self.done_bias):
            raise ConfigError(f"hops.done_bias must be a finite number, got {self.done_bias}.")
        if self.pool and self.steps != "fixed":
            raise ConfigError(
                "hops.pool ranks the passages of chains of a fixed number of hops: choose --hops.steps fixed."
            )
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ConfigError(f"hops.temperature must be above 0, got {self.temperature}.")
        if self.evidence < 0:
            raise ConfigError(f"hops.evidence must be at least 0 words, got {self.evidence}.")
        if self.steps != "ranked" and (self.temperature is not None or self.evidence or not self.done):
            raise ConfigError("hops.temperature, evidence and done are for --hops.steps ranked.")
        if self.steps == "ranked" and (self.branch is not None or self.repeat):
            raise ConfigError("ranked hops have no hops.branch and no hops.repeat: leave them out.")
        if self.sets and self.steps in ("single", "ranked"):
            raise ConfigError("hops.sets is about chains: choose --hops.steps dynamic or fixed.")
        if self.choose != "likeliest" and self.steps != "dynamic":
            raise ConfigError(
                f"hops.choose {self.choose} is about chains that end: choose --hops.steps dynamic."
            )


USUAL_HOPS = HopOptions()
"""A single step."""
