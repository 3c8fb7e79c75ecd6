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
        whole: Whether a quote must end at the end of a key; otherwise it may end anywhere.
        repeat: Allow the same key twice in one answer.
        max_new_tokens: The longest answer in tokens.
        max_key_tokens: The length in tokens after which a quote ends as soon as it may.
        batch_size: Questions in a batch.
        max_keys: If many keys hold a quote, at most this many are named, and only their passages are
            retrieved. A quote also reports how many keys hold it. Another quote may name the others.
    """

    beams: Count = 10
    beam: Beam = "adaptive"
    mode: ScoreMode = "full"
    whole: bool = True
    repeat: bool = False
    max_new_tokens: Count = 128
    max_key_tokens: Count = 128
    batch_size: Count = 8
    max_keys: Count = 100


USUAL_INTERLEAVE = InterleaveOptions()
