"""The options for building a constraint index. The module is light to import, for the command line."""

from __future__ import annotations

import re
from typing import Literal

from grls.errors import ConfigError
from grls.io.arguments import Count, options

Form = Literal["whole", "prefixes"]
"""What is stored of each row: the whole row, or only the shortest prefix that no other row has."""


@options("index")
class IndexOptions:
    """How to index the passages of a corpus for a generator.

    Args:
        backend: Index backend: ``array``, ``marisa``, ``flat``, or one that is registered.
        form: What the index stores of each passage: ``whole``, or ``prefixes``: only the shortest prefix that
            no other passage has, a fraction of the size. Early stop needs no more. Decoding to the end
            (``--search.early_stop false``, ``full`` scores) and adding passages later need ``whole``. Only
            with backend ``array``.
        memory: Memory for building the index, such as 500MB or 8GB, without model and corpus. A larger index
            is sorted on disk, beside the output. Only with backend ``array``.
    """

    backend: str = "array"
    form: Form = "whole"
    memory: str = "2GB"

    def __post_init__(self) -> None:
        memory_bytes(self.memory)


@options("limits")
class LimitOptions:
    """Length limits in tokens.

    Args:
        passage: Cut passages to this length; null: as in training (512 for other models). For an encoder set
            only ``input``.
        query: The longest query; null: as in training (256).
        input: The longest model input, including evidence; null: as in training (512).
        evidence: How many words of each retrieved passage a model input holds: its first sentence and the
            sentences nearest to the question; 0: all; null: as in training (all).
    """

    passage: Count | None = None
    query: Count | None = None
    input: Count | None = None
    evidence: Count | None = None


def memory_bytes(text: str) -> int:
    """A size such as ``2GB`` in bytes (powers of 1,024; KB, MB, GB, TB)."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"expected a size such as 500MB or 8GB as memory, got {text!r}.")
    return int(float(match[1]) * 1024 ** (1 + "KMGT".index(match[2].upper())))
