"""The options for decoding free text and quoted keys."""

from __future__ import annotations

from typing import Literal

from grls.data.types import ScoreMode
from grls.io.arguments import Count, options

Beam = Literal["adaptive", "full", "greedy"]


@options("search")
class InterleaveOptions:
    """How free text and quotes are decoded.

    Args:
        beams: Beam width.
        beam: How to search. adaptive: free text greedily, quotes with the whole beam; full: both with the
            whole beam; greedy: both greedily.
        mode: Score mode within quotes: over the vocabulary (full), or over the allowed tokens (renormalized).
        repeat: Allow the same key twice in one answer.
        max_new_tokens: The longest answer in tokens.
        batch_size: Questions in a batch.
    """

    beams: Count = 10
    beam: Beam = "adaptive"
    mode: ScoreMode = "full"
    repeat: bool = False
    max_new_tokens: Count = 128
    batch_size: Count = 8


USUAL_INTERLEAVE = InterleaveOptions()
