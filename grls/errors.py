"""Errors a user can cause, each with the remedy in its text.

A command prints a ``GrlsError`` as one line and ends with a non-zero exit code. A broken invariant of grls
itself stays an ``AssertionError``.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|can't start new thread|ALLOC_FAILED", re.I
)
"""How libraries without an error class for it (torch on a CPU) say that there is too little memory."""


_LONGEST, _FIRST, _LAST = 10_000, 5_000, 3_000
"""The longest error text, and how much of the beginning and the end of a longer one is kept."""


class GrlsError(Exception):
    """The base class of every error that grls raises on purpose.

    Args:
        text: What was given, what was expected, and the remedy. The middle of a very long text (it quotes a
            long value) is left out.
    """

    def __init__(self, text: object = ""):
        shown = str(text)
        if len(shown) > _LONGEST:
            left_out = f" … ({len(shown) - _FIRST - _LAST:,} characters left out) … "
            shown = shown[:_FIRST] + left_out + shown[-_LAST:]
        super().__init__(shown)


class DataError(GrlsError):
    """A data file is missing, malformed or contradicts another one.

    Args:
        problem: What the file holds, what was expected, and the remedy.
        file: The file at fault.
        line: The line at fault, counted from 1; None if no single line is at fault.
    """

    def __init__(self, problem: str, file: str | Path | None = None, line: int | None = None):
        where = "" if file is None else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(where + problem)
        self.file = file
        self.line = line


class IndexFormatError(GrlsError):
    """An index on disk is incomplete, damaged, or of another format version."""


class MismatchError(GrlsError):
    """Two artefacts do not belong together: index and tokenizer, index and corpus, model and index."""


class ConfigError(GrlsError):
    """An option has a value that cannot work."""


class WriteError(GrlsError):
    """A file could not be written (full disk, missing permission); nothing was left under its final name."""


NOT_NUMBERS = (
    "the model's logits are not numbers (NaN): its weights are damaged or overflow. T5 overflows in float16: "
    "use bfloat16 or float32."
)
"""The error text for a model whose logits are NaN."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library says that memory has run out, for data or for a new thread.

    Code that gives a library's errors another meaning (this model cannot be decoded fast) calls this first.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        return _NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError)
