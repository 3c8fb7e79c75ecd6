"""BM25, as options. Light to import: command lines are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import ConfigError

Variant = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]


@dataclass(frozen=True)
class BM25Options:
    """How BM25 scores.

    Args:
        k1: Term-frequency saturation.
        b: Length normalization, from 0 (none) to 1.
        method: The variant of BM25, as bm25s names it.

    Raises:
        ConfigError: ``k1`` or ``b`` is out of range.
    """

    k1: float = 1.5
    b: float = 0.75
    method: Variant = "lucene"

    def __post_init__(self) -> None:
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise ConfigError(f"expected k1 >= 0 and 0 <= b <= 1, got k1={self.k1}, b={self.b}.")
