"""The options for decoding free text and quoted keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from grls.data.types import ScoreMode
from grls.errors import at_least, one_of
from grls.io.recipes import rare

Beam = Literal["adaptive", "full", "greedy"]


@dataclass(frozen=True)
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

    beams: int = 10
    beam: Beam = rare("adaptive")
    mode: ScoreMode = rare("full")
    whole: bool = rare(True)
    repeat: bool = rare(False)
    max_new_tokens: int = 128
    max_key_tokens: int = rare(128)
    batch_size: int = rare(8)
    max_keys: int = rare(100)

    def __post_init__(self) -> None:
        one_of(get_args(ScoreMode), "search.", mode=self.mode)
        one_of(get_args(Beam), "search.", beam=self.beam)
        counts = ("beams", "max_new_tokens", "max_key_tokens", "batch_size", "max_keys")
        at_least(1, "search.", **{name: getattr(self, name) for name in counts})


USUAL_INTERLEAVE = InterleaveOptions()
