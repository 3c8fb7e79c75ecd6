"""The options of training a reranker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RerankerOptions:
    """Options of training a reranker. The defaults are for fewer examples than the paper has.

    Args:
        epochs: Passes over the examples.
        batch_size: Prefixes in a batch of all processes together, each with all its candidates.
        learning_rate: Peak learning rate.
        seed: Seed of the order, of dropout, and of new weights on top of the encoder.
    """

    epochs: int = 3
    batch_size: int = 4
    learning_rate: float = 2e-5
    seed: int = 0


USUAL_FIT = RerankerOptions()
