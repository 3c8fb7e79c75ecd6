"""Errors a user can cause, each with the remedy in its text.

A command prints a ``GrlsError`` as one line and ends with a non-zero exit code. A broken invariant of grls
itself stays an ``AssertionError``.

The text names an option as a value, :class:`Option`, and each surface words it in its own way:

    raise ConfigError(f"BM25 never writes DONE: choose {Option('hops.steps', 'fixed')}.")

    in_shell     choose --hops.steps fixed.
    in_python    choose steps="fixed".
    in_request   choose hops.steps "fixed".
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|can't start new thread|ALLOC_FAILED", re.I
)
"""How libraries without an error class for it (torch on a CPU) say that there is too little memory."""


_LONGEST, _FIRST, _LAST = 10_000, 5_000, 3_000
"""The longest error text, and how much of the beginning and the end of a longer one is kept."""

Surface = Callable[[str, Sequence[Any]], str]
"""Words an option; takes its dotted name and the values that the text names, none or more."""
_LIGHTNING = ("checkpoint.", "data.", "last.", "model.", "quotes.", "recall.", "save.", "trainer.")
"""Sections of options whose dotted names are those of Python, too (:func:`grls.train.options.read_stage`)."""
_MARK = re.compile(r'`grls [^`]*`|⟦(\[".*?\])⟧')


def in_shell(name: str, values: Sequence[Any]) -> str:
    """``--hops.steps fixed or dynamic``; a shell and the command read it as it stands."""
    words = [value if isinstance(value, list) else [value] for value in values]
    texts = [
        " ".join(quote(one if isinstance(one, str) else json.dumps(one)) for one in row) for row in words
    ]
    return " ".join([f"--{name}", " or ".join(texts)]).rstrip()


def in_python(name: str, values: Sequence[Any]) -> str:
    """``steps="fixed" or "dynamic"``."""
    argument = name if name.startswith(_LIGHTNING) else name.rpartition(".")[2]
    texts = [_quoted(value) if isinstance(value, str) else repr(value) for value in values]
    return "=".join([argument, *([" or ".join(texts)] if texts else [])])


def in_request(name: str, values: Sequence[Any]) -> str:
    """``hops.steps "fixed" or "dynamic"``."""
    texts = [_quoted(value) if isinstance(value, str) else json.dumps(value) for value in values]
    return " ".join([name, " or ".join(texts)]).rstrip()


def _quoted(value: str) -> str:
    return value if value.isupper() else json.dumps(value, ensure_ascii=False)


_process: list[Surface] = [in_python]


@contextmanager
def worded_for(surface: Surface) -> Iterator[None]:
    """A context in which errors and warnings name options as a surface does; elsewhere as Python does."""
    _process.append(surface)
    try:
        yield
    finally:
        _process.pop()


def worded(text: str, surface: Surface | None = None) -> str:
    """A text with its options as a surface has them; those of commands between backticks as the shell.

    Args:
        text: The text.
        surface: Words an option; None: that of this process.
    """
    write = surface or _process[-1]

    def option(match: re.Match[str]) -> str:
        if match[1] is None:
            return f"`{worded(match[0][1:-1], in_shell)}`"
        try:
            python, name, *values = json.loads(match[1])
        except ValueError:
            name = None
        if not isinstance(name, str):  # a text of a user that looks like a mark
            return match[0]
        return python if python and write is in_python else write(name, values)

    return _MARK.sub(option, text)


class Option:
    """An option that a text names.

    In an f-string it is a mark, which the surface of an error replaces. ``str`` words it for this process, as
    in the arguments of a log.

    Args:
        name: Its dotted name, as in ``hops.steps``.
        values: The values to choose from; one in capitals stands for a value.
        python: The whole text for Python, where the argument has another name or is of another call.
    """

    def __init__(self, name: str, *values: Any, python: str = ""):
        self._mark = f"⟦{json.dumps([python, name, *values], default=str)}⟧"

    def __format__(self, _: str) -> str:
        return self._mark

    def __str__(self) -> str:
        return worded(self._mark)


class GrlsError(Exception):
    """The base class of every error that grls raises on purpose.

    Args:
        text: What was given, what was expected, and the remedy. The middle of a very long text (it quotes a
            long value) is left out.
    """

    def __init__(self, text: object = ""):
        shown = f"{text}"
        if len(shown) > _LONGEST:
            left_out = f" … ({len(shown) - _FIRST - _LAST:,} characters left out) … "
            shown = shown[:_FIRST] + left_out + shown[-_LAST:]
        super().__init__(shown)

    @property
    def text(self) -> str:
        """The text with its options as values, for another surface, or for an error about this error."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return worded(self.text)


class DataError(GrlsError):
    """A data file is missing, malformed or contradicts another one.

    Args:
        problem: What the file holds, what was expected, and the remedy.
        file: The file at fault.
        line: The line at fault, counted from 1; None if no single line is at fault.
    """

    def __init__(self, problem: str, file: str | Path | None = None, line: int | None = None):
        where = "" if file in (None, "") else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(where + problem)
        self.file = file
        self.line = line


class IndexFormatError(GrlsError):
    """An index on disk is incomplete, damaged, or of another format version."""


class MismatchError(GrlsError):
    """Two artefacts do not belong together: index and tokenizer, index and corpus, model and index."""


class ConfigError(GrlsError):
    """An option has a value that cannot work."""


class OptionError(ConfigError):
    """The arguments of a command cannot be read: its exit code is argparse's, 2."""


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
