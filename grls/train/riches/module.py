"""The LightningModule of interlaced retrieval: any language model, causal or encoder-decoder."""

from __future__ import annotations

from typing import Any, Literal

from grls.models.load.generators import GeneratorSpec
from grls.train.core.module import GeneratorModule


class Interlace(GeneratorModule):
    """Learns to answer with quotes (arXiv 2407.00361): thoughts, quoted keys, answer.

    The loss is taken over the target, not over the prompt. ``full``: over the vocabulary at all positions;
    ``allowed``: within keys, over the tokens that the decoder allows there, which fits ``renormalized``
    scores; the mean is over all positions but those within a key with one allowed token.

    Args:
        generator: The model to start from.
        optimizer: ``adamw``, or ``adafactor`` with a fixed learning rate.
        freeze_embeddings: Do not train the word embeddings and an output head that is tied to them.
        kwargs: The options of :class:`grls.train.core.module.GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adamw",
        freeze_embeddings: bool = False,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, freeze_embeddings=freeze_embeddings, **kwargs)
