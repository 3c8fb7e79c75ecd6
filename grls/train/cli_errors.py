"""The parser of a training stage: errors of jsonargparse in one line, and whole numbers that stay whole.

A training stage takes classes as options. For a wrong option jsonargparse prints every type that it tried,
from the outermost class to the innermost, with all values. This module takes the path of the option and the
reason from that text. It does not know the meaning of any option.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from inspect import signature
from pydoc import locate
from typing import Any, NoReturn, Union, get_args, get_origin

from lightning.pytorch.cli import LightningArgumentParser

from grls.errors import ConfigError
from grls.io.terminal import visible

_NOISE = ("Given value type:", "Does not validate", "Errors:", "Expected a <class 'NoneType'>")
_MARKS = ("Parser key", "Does not validate", "Problem with given class_path")
_KEY = re.compile(r"""Parser key "([^"]+)":\s*(.*)""")
_CLASS = re.compile(r"Problem with given class_path '([\w.]+)':")
_UNKNOWN = re.compile(r"Option '([\w.]+)' is not accepted")
_MISSING = re.compile(r"the following arguments are required: (.+)")
_UNRECOGNIZED = re.compile(r"unrecognized arguments: --(.+)")
_PATH = re.compile(r"Expected a path but .*")
_NESTED = re.compile(r"NestedArg\(key='(.*?)', val='?(.*?)'?\)")
_EXPECTED = re.compile(r"Expected a (.+?)(?:\. Got value: (.*))?")


class Parser(LightningArgumentParser):
    """Lightning's parser, with errors of one line instead of pages of usage."""

    called = "grls train"
    """The command as it is typed."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the options of a class; see :func:`whole_numbers_first`."""
        added: list[str] = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if hasattr(action, "_typehint"):
                action._typehint = whole_numbers_first(action._typehint)
        return added

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error with its remedy and exit with argparse's status, 2."""
        if not self.exit_on_error or os.environ.get("JSONARGPARSE_DEBUG"):
            super().error(message, ex)
        line = visible(plain_error(message, self.called))
        print(f"error: {line}\n`{self.called} --help` lists the options.", file=sys.stderr)
        raise SystemExit(2) from ex


class RaisingParser(Parser):
    """The parser of calls from Python, which raises its errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the error with its remedy.

        Raises:
            ConfigError: Always, but for a parser within a parser, whose error the outer one reports.
        """
        if not self.exit_on_error:
            super().error(message, ex)
        raise ConfigError(
            f"{visible(plain_error(message, self.called))} `{self.called} --help` lists the options."
        ) from ex


def whole_numbers_first(kind: Any) -> Any:
    """A union of types with ``int`` before ``float``; any other type as it is.

    The first type that fits decides, and a whole number fits both: ``limit_train_batches: 1`` is one batch,
    1.0 the whole epoch. Python caches unions without their order, so that ``Optional[Union[int,
    float]]`` has the order of whichever module was imported first.
    """
    kinds = get_args(kind)
    if get_origin(kind) is not Union or not {int, float} <= set(kinds):
        return kind
    others = [each for each in kinds if each not in (int, float)]
    first = min(kinds.index(int), kinds.index(float))
    before = [each for each in kinds[:first] if each in others]
    return Union[(*before, int, float, *others[len(before) :])]


def plain_error(message: str, called: str = "grls train") -> str:
    """Shorten an error of jsonargparse to ``--option: reason``; other messages stay as they are.

    Args:
        message: The message: a line for each type that was tried, and for each class around the option.
        called: The command as it is typed.
    """
    if not any(mark in message for mark in _MARKS):
        return message
    path: list[str] = []
    reasons: list[str] = []
    owner = tried = value = ""
    for line in (raw.strip().removeprefix("- ") for raw in message.splitlines()):
        if line.startswith("Given value:"):
            value = line.removeprefix("Given value:").strip()
            break
        if line.startswith(_NOISE):
            continue
        if match := _KEY.fullmatch(line):
            path.append(match[1])
            line = match[2]
        elif match := _CLASS.fullmatch(line):
            owner, line = match[1], ""
        elif line.startswith("Subtypes:"):
            tried, line = line.removeprefix("Subtypes:").strip(), ""
        if line:
            reasons.append(line)
    reasons = [reason for reason in reasons if not _PATH.fullmatch(reason)] or reasons
    if not reasons:
        return message
    expected = [_EXPECTED.fullmatch(reason) for reason in reasons]
    if tried and all(match and match[2] is None for match in expected):  # the value has none of these types
        kinds = tried.removeprefix("[").removesuffix("]").replace("<class 'NoneType'>, ", "")
        reasons = [f"Expected a {kinds}. Got value: {value}"]
    return "; ".join(dict.fromkeys(_plain_reason(reason, path, owner, called) for reason in reasons))


def _plain_reason(reason: str, path: list[str], owner: str, called: str) -> str:
    """One reason, with the whole name of the option."""
    option = "--" + ".".join(path)
    if match := _UNKNOWN.fullmatch(reason):
        near = get_close_matches(match[1], _options(owner), 1)
        hint = f"; did you mean {option}.{near[0]}?" if near else "."
        if len(path) == 1:
            hint += f" `{called} {option}.help {owner}` lists them."
        return f"{option}.{match[1]} is no option of {owner}{hint}"
    if path and (match := _UNRECOGNIZED.fullmatch(reason)):
        return f"unrecognized arguments: {option}.{match[1]}"
    if match := _MISSING.fullmatch(reason):
        inner = [f"{option}.{name}" if path else f"--{name}" for name in match[1].split(", ")]
        return f"{' and '.join(inner)} must be given."
    if match := _EXPECTED.fullmatch(reason):
        if within := _NESTED.fullmatch(match[2] or ""):  # the value takes no options, or is not a class
            last = "" if option.endswith(f".{within[1]}") else f".{within[1]}"
            return f"{option}{last}: cannot take {within[2]}."
        kind = re.sub(r"<class '([\w.]+)'>", r"\1", match[1]).replace("typing.", "")
        return f"{option}: expected {kind}" + ("." if match[2] is None else f", got {match[2]}.")
    return f"{option}: {reason}" if path else reason


def _options(owner: str) -> set[str]:
    """The option names of a class, with the options of its bases."""
    bases = getattr(locate(owner), "__mro__", ())
    makers = [vars(base)["__init__"] for base in bases if base is not object and "__init__" in vars(base)]
    return {name for maker in makers for name in signature(maker).parameters} - {"self", "args", "kwargs"}
