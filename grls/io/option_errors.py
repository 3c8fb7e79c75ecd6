"""What jsonargparse says of a wrong option, in one line of plain English.

For a wrong option jsonargparse prints every type that it tried, from the outermost class to the innermost,
with all values, below the whole usage. This module takes the path of the option and the reason from that
text, and names the option that may be meant. It does not know the meaning of any option.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from difflib import get_close_matches
from inspect import signature
from pydoc import locate
from typing import NoReturn

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
_QUOTE = "'"
_SHOWN = 3
"""The most options that are named for a beginning of their names."""
_KINDS = (
    (r"\b(?:tuple|list)\[int(?:, \.\.\.)?\]", "a list of whole numbers"),
    (r"\bint\b", "a whole number"),
    (r"\bfloat\b", "a number"),
    (r"\bbool\b", "true or false"),
    (r"\bstr\b", "a text"),
)
"""Types, and their names in plain English."""
_EXPECTED = re.compile(r"Expected a (.+?)(?:\. Got value: (.*))?")


def refuse_options(message: str, parser: ArgumentParser, called: str, error: Exception | None) -> NoReturn:
    """Print the error with its remedy and exit with argparse's status, 2.

    Args:
        message: What jsonargparse says.
        parser: The parser, which knows the options.
        called: The command as it is typed.
        error: Where it came from.
    """
    line = plain_option_error(message, parser, called)
    print(f"error: {line}\n`{called} --help` lists the options.", file=sys.stderr)
    raise SystemExit(2) from error


def plain_option_error(message: str, parser: ArgumentParser, called: str) -> str:
    """An error of jsonargparse in one line, with the option that may be meant.

    Args:
        message: What jsonargparse says.
        parser: The parser, which knows the options.
        called: The command as it is typed.
    """
    line = plain_error(message, called)
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    places = [action.dest for action in parser._actions if not action.option_strings]
    if match := re.fullmatch(r"unrecognized arguments: (.+)", line, re.DOTALL):
        required = [
            action.option_strings[-1]
            for action in parser._actions
            if action.required and action.option_strings
        ]
        line = _unknown_argument(match[1].split(), options, places, called, required)
    elif match := _MISSING.fullmatch(line):
        line = _required(match[1].split(", "), places)
    elif match := re.fullmatch(r"argument (--[\w.]+): expected (?:one|at least one) argument", line):
        line = f"{match[1]} needs a value{_such_as(parser, match[1])}."
    elif match := re.fullmatch(r"Option '([\w.]+)' is not accepted", line):
        line = f"the file of --config: {_no_option(match[1], [name[2:] for name in options])}"
    elif match := re.fullmatch(r"Group '([\w.]+)' does not accept option '([\w.]+)'", line):
        line = _no_option(f"--{match[1]}.{match[2]}", options)
    elif match := re.search(r"""Parser key "(\w+)":\s+Unable to load config '([^']+)'""", message):
        line = f"--{match[1]}: {match[2]} cannot be read; give a file of YAML."
    elif match := re.match(r"Problems parsing config: (.+)", line, re.DOTALL):
        line = f"the file of --config is no YAML: {' '.join(match[1].split())}."
    return str(visible(line))


def _unknown_argument(
    words: list[str], options: list[str], places: list[str], called: str, required: list[str]
) -> str:
    """The line for arguments that nothing takes."""
    wrong = next((word for word in words if word.startswith("-")), None)
    if wrong is not None:
        return _no_option(wrong.partition("=")[0], options)
    takes = f"takes {' and '.join(places)}, and options" if places else "takes only options"
    form = " ".join([called, *map(str.upper, places), *(f"{name} {name[2:].upper()}" for name in required)])
    return f"the argument {words[0]!r} has no place: `{called}` {takes}. Write `{form}`."


def _no_option(wrong: str, options: list[str]) -> str:
    kept = [name for name in options if not name.endswith(".help")]
    longer = [name for name in kept if name.startswith(wrong)] if len(wrong) > len("--") else []
    elsewhere = [name for name in kept if _last_part(name) == _last_part(wrong)]
    near = (
        longer[:_SHOWN]
        or get_close_matches(wrong, elsewhere, 1, 0.0)
        or get_close_matches(wrong, kept, 1, 0.75)
    )
    return f"there is no option {wrong}" + (f"; did you mean {' or '.join(near)}?" if near else ".")


def _last_part(option: str) -> str:
    return option.lstrip("-").rpartition(".")[2]


def _required(names: list[str], places: list[str]) -> str:
    """The line for what must be given."""
    named = [f"the argument {name}" if name in places else f"--{name.lstrip('-')}" for name in names]
    return f"{' and '.join(named)} must be given."


def _such_as(parser: ArgumentParser, option: str) -> str:
    """The values of an option that is true or false."""
    action = next((one for one in parser._actions if option in one.option_strings), None)
    kind = str(getattr(action, "_typehint", ""))
    return f": {option} true, or false" if "bool" in kind else ""


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
        return f"{option}: expected {_plain_kind(match[1])}" + (
            "." if match[2] is None else f", got {match[2]}."
        )
    return f"{option}: {reason}" if path else reason


def _plain_kind(kind: str) -> str:
    """A type in plain English."""
    kind = re.sub(r"<class '([\w.]+)'>", r"\1", kind).replace("typing.", "")
    for pattern, words in _KINDS:
        kind = re.sub(pattern, words, kind)
    return re.sub(r"Literal\[([^\]]*)\]", lambda found: f"one of {found[1].replace(_QUOTE, '')}", kind)


def _options(owner: str) -> set[str]:
    """The option names of a class, with the options of its bases."""
    bases = getattr(locate(owner), "__mro__", ())
    makers = [vars(base)["__init__"] for base in bases if base is not object and "__init__" in vars(base)]
    return {name for maker in makers for name in signature(maker).parameters} - {"self", "args", "kwargs"}
