"""The options of BM25. The module is light to import, since the command line needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from grls.errors import at_least, bounded, one_of
from grls.io.recipes import rare

Variant = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]


@dataclass(frozen=True)
class BM25Options:
    """Options of BM25.

    Args:
        k1: Term-frequency saturation (k1), at least 0.
        b: Length normalization (b), from 0 (none) to 1 (full).
        method: The variant of BM25, by its name in bm25s, without what bm25l and bm25+ add to all passages.
    """

    k1: float = 1.5
    b: float = 0.75
    method: Variant = rare("lucene")

    def __post_init__(self) -> None:
        at_least(0, "bm25.", k1=self.k1)
        bounded("[0, 1]", "bm25.", b=self.b)
        one_of(get_args(Variant), "bm25.", method=self.method)


USUAL_BM25 = BM25Options()
