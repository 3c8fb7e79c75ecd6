"""Counts in printed texts: ``1 query``, ``1,200 queries``."""

from __future__ import annotations

import re

_SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")


def counted(count: int, noun: str, several: str | None = None) -> str:
    """A number with its noun, which is in the singular for 1.

    Args:
        count: The number.
        noun: The noun in the singular, of one word or several; its last word changes.
        several: What follows another number than 1, where more than the last word changes
            (``counted(n, "query is", "queries are")``); None: the plural of the noun.
    """
    return f"{count:,} {noun if count == 1 else several or plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a regular noun: ``query`` -> ``queries``, ``cross-encoder`` -> ``cross-encoders``."""
    if _CONSONANT_Y.search(noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if _SIBILANT.search(noun) else f"{noun}s"
