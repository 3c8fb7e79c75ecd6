"""The LightningModule of the query generator."""

from __future__ import annotations

from typing import Any

from grls.models.load.build import GeneratorSpec
from grls.train.riches.module import Interlace


class WriteQueries(Interlace):
    """Learns to write the query that a passage answers; any language model, causal or encoder-decoder.

    Args:
        generator: The model to start from.
        kwargs: The options of :class:`grls.train.riches.module.Interlace`; the loss is ``full``.
    """

    def __init__(self, generator: GeneratorSpec, **kwargs: Any):
        super().__init__(generator, **kwargs)
