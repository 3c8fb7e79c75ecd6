"""Where a quoted key begins and ends, on token ids.

A tokenizer may write a marker in several ways: alone, with the space before it, in several byte pieces, or
merged with what follows. Ways that end in the marker open a key; tokens in which something follows the marker
could hide the beginning of a key, and are barred from free text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from grls.errors import ConfigError
from grls.index.rows import Ints

OPENING, CLOSING = "«", "»"
_LEFT = ("", " ", "\n", "a", "a ", ".", ". ")


class Markers(NamedTuple):
    """How a tokenizer writes the markers.

    Attributes:
        opening: Token sequences after which a key begins.
        closing: The tokens that close a key.
        barred: Tokens that free text may not hold.
    """

    opening: tuple[tuple[int, ...], ...]
    closing: tuple[int, ...]
    barred: Ints

    @classmethod
    def of(cls, tokenizer: Any, opening: str = OPENING, closing: str = CLOSING) -> Self:
        """The markers of a tokenizer.

        Args:
            tokenizer: Any transformers tokenizer.
            opening: What begins a key.
            closing: What ends it.

        Raises:
            ConfigError: A marker is empty, both are equal, or the tokenizer cannot write one.
        """
        if not opening.strip() or not closing.strip() or opening == closing:
            raise ConfigError(f"the markers must be two different texts, got {opening!r} and {closing!r}.")
        ways: set[tuple[int, ...]] = set()
        for left in _LEFT:
            ways.add(_ends(tokenizer, left, opening)[0])
        return cls(
            tuple(sorted(ways)),
            _ends(tokenizer, "a ", closing)[-1],
            np.array(_barred(tokenizer, opening, closing), dtype=np.int64),
        )

    def opens(self, tokens: Sequence[int]) -> bool:
        """Whether a key begins after these tokens."""
        return any(tuple(tokens[-len(way) :]) == way for way in self.opening)


def _ends(tokenizer: Any, left: str, marker: str) -> list[tuple[int, ...]]:
    """The last tokens of ``left + marker`` that write the marker, with more and more white space before it.

    Raises:
        ConfigError: The tokenizer cannot write the marker.
    """
    ids: list[int] = tokenizer(left + marker, add_special_tokens=False)["input_ids"]
    if tokenizer.unk_token_id in ids or not tokenizer.decode(ids).endswith(marker):
        raise ConfigError(
            f"the tokenizer cannot write the marker {marker!r}; choose another one with --markers."
        )
    ends = [ids[first:] for first in reversed(range(len(ids)))]
    found = [tuple(end) for end in ends if tokenizer.decode(end).strip() == marker]
    if not found:
        raise ConfigError(
            f"the tokenizer merges the marker {marker!r} with what stands before it; choose another one with "
            "--markers."
        )
    return found


@lru_cache(maxsize=8)
def _pieces(tokenizer: Any) -> tuple[str, ...]:
    """The text of every token."""
    return tuple(tokenizer.batch_decode([[token] for token in range(len(tokenizer))]))


def _barred(tokenizer: Any, opening: str, closing: str) -> list[int]:
    return [
        token
        for token, text in enumerate(_pieces(tokenizer))
        if closing in text or (opening in text and not text.endswith(opening))
    ]
