"""The options of rescoring with a cross-encoder."""

from __future__ import annotations

from grls.io.arguments import Count, NonNegativeFloat, options

PASSAGES = 100
"""Default number of passages that are rescored."""


@options()
class Rereading:
    """Options of rescoring with a cross-encoder.

    Args:
        passages: Number of best passages that the cross-encoder reads (n).
        weight: Weight of its logit beside the score of the first retriever (w); null: the logit replaces the
            score.
    """

    passages: Count
    weight: NonNegativeFloat | None = None
