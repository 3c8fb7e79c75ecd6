"""What jsonargparse refuses, in one line.

A training stage takes classes as options, and jsonargparse tells of a wrong one by every type that it has
tried, from the outermost class to the innermost, with all values. Here the path of the option and the reason
are taken out of that. It knows nothing of what the options mean.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from inspect import signature
from pydoc import locate
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser

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
    """Lightning's, whose errors are one line instead of pages of usage."""

    called = "grls train"
    """How the command is called."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print it with the remedy and leave with argparse's status, 2."""
        if not self.exit_on_error or os.environ.get("JSONARGPARSE_DEBUG"):
            super().error(message, ex)
        line = visible(plain_error(message, self.called))
        print(f"error: {line}\n`{self.called} --help` lists the options.", file=sys.stderr)
        raise SystemExit(2) from ex


def plain_error(message: str, called: str = "grls train") -> str:
    """An error of jsonargparse as ``--option: reason``; one that is none of the kind as it is.

    Args:
        message: With one line for each type that was tried, and for each class that the option lies in.
        called: How the command is called.
    """
    if not any(mark in message for mark in _MARKS):
        return message
    path: list[str] = []
    reasons: list[str] = []
    owner = tried = value = ""
    for line in (some.strip().removeprefix("- ") for some in message.splitlines()):
        if line.startswith("Given value:"):
            value = line.removeprefix("Given value:").strip()
            break
        if line.startswith(_NOISE):
            continue
        if found := _KEY.fullmatch(line):
            path.append(found[1])
            line = found[2]
        elif found := _CLASS.fullmatch(line):
            owner, line = found[1], ""
        elif line.startswith("Subtypes:"):
            tried, line = line.removeprefix("Subtypes:").strip(), ""
        if line:
            reasons.append(line)
    reasons = [reason for reason in reasons if not _PATH.fullmatch(reason)] or reasons
    if not reasons:
        return message
    expected = [_EXPECTED.fullmatch(reason) for reason in reasons]
    if tried and all(found and found[2] is None for found in expected):  # the value is of none of these kinds
        kinds = tried.removeprefix("[").removesuffix("]").replace("<class 'NoneType'>, ", "")
        reasons = [f"Expected a {kinds}. Got value: {value}"]
    return "; ".join(dict.fromkeys(_told(reason, path, owner, called) for reason in reasons))


def _told(reason: str, path: list[str], owner: str, called: str) -> str:
    """One reason, with the option's whole name."""
    option = "--" + ".".join(path)
    if found := _UNKNOWN.fullmatch(reason):
        near = get_close_matches(found[1], _options(owner), 1)
        hint = f"; did you mean {option}.{near[0]}?" if near else "."
        if len(path) == 1:
            hint += f" `{called} {option}.help {owner}` lists them."
        return f"{option}.{found[1]} is no option of {owner}{hint}"
    if path and (found := _UNRECOGNIZED.fullmatch(reason)):
        return f"unrecognized arguments: {option}.{found[1]}"
    if found := _MISSING.fullmatch(reason):
        inner = [f"{option}.{name}" if path else f"--{name}" for name in found[1].split(", ")]
        return f"{' and '.join(inner)} must be given."
    if found := _EXPECTED.fullmatch(reason):
        if within := _NESTED.fullmatch(found[2] or ""):  # an option of what has none, or a class that is none
            last = "" if option.endswith(f".{within[1]}") else f".{within[1]}"
            return f"{option}{last}: cannot take {within[2]}."
        kind = re.sub(r"<class '([\w.]+)'>", r"\1", found[1]).replace("typing.", "")
        return f"{option}: expected {kind}" + ("." if found[2] is None else f", got {found[2]}.")
    return f"{option}: {reason}" if path else reason


def _options(owner: str) -> set[str]:
    """The names that a class takes, with those that it hands on to its bases."""
    bases = getattr(locate(owner), "__mro__", ())
    made = [vars(base)["__init__"] for base in bases if base is not object and "__init__" in vars(base)]
    return {name for some in made for name in signature(some).parameters} - {"self", "args", "kwargs"}
