"""Errors a user can cause, each with the remedy in its text.

Everything a command line should print as one line and end with a non-zero exit code derives from
``GrlsError``. Broken invariants of our own stay ``AssertionError``.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|can't start new thread|ALLOC_FAILED", re.I
)
"""What libraries that have no class of their own for it (torch on a CPU) say of too little memory."""


class GrlsError(Exception):
    """Base of every error that grls raises on purpose."""


class DataError(GrlsError):
    """A data file is missing, malformed or contradicts another one.

    Args:
        problem: What was found, what was expected, and the remedy.
        file: The file at fault.
        line: The 1-based line at fault, where there is one.
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
    """Writing failed (a full disk, a missing right); nothing was left under the final name."""


NOT_NUMBERS = (
    "the model's logits are not numbers (NaN): its weights are damaged or overflow. T5 overflows in float16: "
    "use bfloat16 or float32."
)
"""What to say of a model that writes NaN."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error, of whatever library, says that memory or what a thread needs of it has run out.

    Who takes errors of a library for something else (a model that cannot be driven so) asks this first.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):
        return _NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError)
