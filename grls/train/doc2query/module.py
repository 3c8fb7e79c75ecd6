"""The LightningModule of the query generator."""

from __future__ import annotations

from grls.train.riches.module import Interlace


class WriteQueries(Interlace):
    """Learns to write the query that a passage answers; any language model, causal or encoder-decoder.

    The loss is ``full``.
    """
