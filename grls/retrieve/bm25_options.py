"""The options of BM25. The module is light to import, since the command line needs it."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import NonNegativeFloat, Share, options

Variant = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]


@options("bm25")
class BM25Options:
    """Options of BM25.

    Args:
        k1: Term-frequency saturation (k1), at least 0.
        b: Length normalization (b), from 0 (none) to 1 (full).
        method: The variant of BM25, by its name in bm25s, without what bm25l and bm25+ add to all passages.
    """

    k1: NonNegativeFloat = 1.5
    b: Share = 0.75
    method: Variant = "lucene"


USUAL_BM25 = BM25Options()
