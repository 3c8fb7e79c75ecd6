"""How a constraint index is built, as options. Light to import: command lines are made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from grls.errors import ConfigError

Form = Literal["whole", "prefixes"]
"""What is stored of each row: all of it, or only the tokens that tell it from every other row."""

Backend = Literal["array", "marisa", "flat"]


@dataclass(frozen=True)
class IndexOptions:
    """How the passages of a corpus are indexed for a generator.

    Args:
        backend: Index backend.
        form: What the index holds of each passage: ``whole``, or ``prefixes``: only what tells it from the
            others, a fraction of the size. That is all that early stop needs; decoding to the end
            (``--search.early_stop false``, ``full`` scores) and adding passages later are refused then.
            Backend ``array``.
        memory: What building the index may take, as 500MB or 8GB; a larger corpus is sorted on disk, beside
            the output. Backend ``array``; model and corpus are not counted.
        span_words: Words of the spans that the model writes instead of passages from their beginning; 0:
            whole passages; null: as in training (other models write passages).

    Raises:
        ConfigError: The memory is no size, or the words are below 0.
    """

    backend: Backend = "array"
    form: Form = "whole"
    memory: str = "2GB"
    span_words: int | None = None

    def __post_init__(self) -> None:
        memory_bytes(self.memory)
        if self.span_words is not None and self.span_words < 0:
            raise ConfigError(f"index.span_words must be at least 0, got {self.span_words}.")


@dataclass(frozen=True)
class LimitOptions:
    """The longest texts, in tokens.

    Args:
        passage: Passages are cut to this length; null: as in training (512 for other models). An encoder has
            the one limit ``input``.
        query: Longest query; null: as in training (256).
        input: Longest model input, evidence included; null: as in training (512).
        evidence: Words that a model input has of the text of each passage found so far, the first sentence
            and those nearest to the question; 0: all; null: as in training (all).
    """

    passage: int | None = None
    query: int | None = None
    input: int | None = None
    evidence: int | None = None


def memory_bytes(text: str) -> int:
    """``2GB`` in bytes (powers of 1,024; KB, MB, GB, TB).

    Raises:
        ConfigError: It is no such size.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ConfigError(f"expected a size such as 500MB or 8GB as memory, got {text!r}.")
    return int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))
