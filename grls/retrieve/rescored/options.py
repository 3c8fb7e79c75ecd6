"""The options of rescoring with a cross-encoder."""

from __future__ import annotations

from dataclasses import dataclass

from grls.errors import at_least

PASSAGES = 100
"""Default number of passages that are rescored."""


@dataclass(frozen=True)
class Rereading:
    """Options of rescoring with a cross-encoder.

    Args:
        passages: Number of best passages that the cross-encoder reads (n).
        weight: Weight of its logit beside the score of the first retriever (w); null: the logit replaces the
            score.
    """

    passages: int
    weight: float | None = None

    def __post_init__(self) -> None:
        at_least(1, passages=self.passages)
        at_least(0, weight=self.weight)
