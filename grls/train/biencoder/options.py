"""The options of training a bi-encoder: which pairs are learned, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import ConfigError

_CANDIDATES = 50
"""How many passages of a ranking, at least, the hard negatives of an epoch are drawn from."""


@dataclass(frozen=True)
class PairOptions:
    """Which pairs are made of a query.

    Args:
        multistep: One pair a hop: query and the gold evidence before -> next gold passage. Otherwise every
            gold passage is paired with the query alone. Null: where some query has several gold passages.
        done: DONE is the passage after the last hop (multi-step only).
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        evidence_words: Words that a query has of the text of each passage found so far: its first sentence
            and those nearest to the question; 0: all. The model keeps it, and so does retrieval.
        hard_negatives: Wrong passages a query that are drawn from its ranking, beside those of the batch.
        seed: Of dropout, the order of examples and what is drawn for each epoch.
    """

    multistep: bool | None = None
    done: bool = True
    shuffle: bool = False
    evidence_words: int = 0
    hard_negatives: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("hard_negatives", "evidence_words"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}.")

    @property
    def ranked(self) -> int:
        """How long a ranking the hard negatives are drawn from, gold passages not counted."""
        return max(_CANDIDATES, 2 * self.hard_negatives) if self.hard_negatives else 0


@dataclass(frozen=True)
class BiEncoderOptions(PairOptions):
    """Which pairs are learned (the options of :class:`PairOptions`), and how.

    Args:
        epochs: Passes over the examples.
        max_steps: Stop after this many optimizer steps, if the epochs are not over before.
        batch_size: Examples of a batch, each the negatives of the others.
        accumulate: Batches whose gradients are added up for one step; negatives stay those of one batch.
        learning_rate: Peak learning rate.
        schedule: ``linear`` falls to 0 after the warm-up, ``constant`` stays.
        warmup: Share of all steps that the rate takes to rise.
        weight_decay: Weight decay.
        optimizer: ``adamw`` or ``adafactor`` (with a rate of its own kind: ours, not relative steps).
        clip: Longest gradient; longer ones are shortened to it.
        scale: Factor on the inner products before the softmax, the inverse of its temperature; null: 20
            where the model normalises its embeddings or compares by cosine, 1 where not.
        length_pool: Batches that are sorted by length together; 1 mixes all lengths in a batch.
        gradient_checkpointing: Less memory for more time.
        precision: ``bfloat16`` computes in mixed precision, ``auto`` does so where the processor has
            instructions for it; the weights are float32 in any case.
        device: ``auto`` takes a GPU where there is one; of several the first (CUDA_VISIBLE_DEVICES says which
            one that is).
        dev_size: Most dev queries whose recall is measured after each epoch.
        k: Cut-off of dev recall.
        log_every: Steps between two logged losses.
    """

    epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    learning_rate: float = 2e-5
    schedule: Literal["linear", "constant"] = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.0
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    clip: float = 1.0
    scale: float | None = None
    length_pool: int = 1
    gradient_checkpointing: bool = False
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    device: Literal["auto", "cpu"] = "auto"
    dev_size: int = 500
    k: int = 5
    log_every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "batch_size", "accumulate", "length_pool", "dev_size", "k", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, or null for no limit, got {self.max_steps}.")
        if self.learning_rate <= 0 or not 0 <= self.warmup < 1:
            raise ConfigError(
                "expected a learning_rate above 0 and a warmup of at least 0 and below 1, got "
                f"{self.learning_rate} and {self.warmup}."
            )
        if self.scale is not None and not self.scale > 0:
            raise ConfigError(f"scale must be above 0, got {self.scale}.")


USUAL_FIT = BiEncoderOptions()
