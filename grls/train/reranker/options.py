"""The options of training a reranker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RerankerOptions:
    """How a reranker is trained. The defaults are for fewer examples than the paper has.

    Args:
        epochs: Passes over the examples.
        batch_size: Prefixes a step, each with all its candidates.
        learning_rate: Peak rate.
        seed: Of order, dropout, and the weights that the encoder lacks.
    """

    epochs: int = 3
    batch_size: int = 4
    learning_rate: float = 2e-5
    seed: int = 0


USUAL_FIT = RerankerOptions()
