"""How free text and quoted keys are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from grls.decode.scores import ScoreMode, check_mode
from grls.errors import ConfigError

Beam = Literal["adaptive", "full", "greedy"]


@dataclass(frozen=True)
class InterleaveOptions:
    """How free text and quotes are decoded.

    Args:
        beams: Beam width.
        beam: adaptive: free text greedily, quotes with the whole beam; full or greedy: both alike.
        mode: Score mode within quotes: over the vocabulary (full), or over what may be quoted (renormalized).
        whole: A quote ends only where a key ends; else anywhere.
        repeat: Allow a key twice in one answer.
        max_new_tokens: Length limit of an answer.
        max_key_tokens: Length after which a quote that may end must.
        batch_size: Questions answered together.
        max_keys: How many of the keys that hold a quote are named, and their passages retrieved, at most; a
            quote says how many hold it in all. Those not named are not quoted by it: another quote may name
            them.

    Raises:
        ConfigError: A count is not positive, or a name is unknown.
    """

    beams: int = 10
    beam: Beam = "adaptive"
    mode: ScoreMode = "full"
    whole: bool = True
    repeat: bool = False
    max_new_tokens: int = 128
    max_key_tokens: int = 128
    batch_size: int = 8
    max_keys: int = 100

    def __post_init__(self) -> None:
        check_mode(self.mode)
        if self.beam not in get_args(Beam):
            raise ConfigError(f"unknown beam {self.beam!r}; expected one of {', '.join(get_args(Beam))}.")
        for name in ("beams", "max_new_tokens", "max_key_tokens", "batch_size", "max_keys"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")


USUAL_INTERLEAVE = InterleaveOptions()
