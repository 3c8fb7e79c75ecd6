"""What is wrong with an option, in one line of plain English; the texts of ``--help``.

For a wrong option jsonargparse prints every type that it tried, below the whole usage. This module takes
the path of the option and the reason from that text, and names the option that may be meant.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from difflib import get_close_matches
from inspect import isclass, signature
from pydoc import locate
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from grls.errors import ConfigError, Option, OptionError, worded

_NOISE = ("Given value type:", "Does not validate", "Errors:", "Expected a <class 'NoneType'>")
_MARKS = ("Parser key", "Does not validate", "Problem with given class_path")
_KEY = re.compile(r"""Parser key "([^"]+)":\s*(.*)""")
_CLASS = re.compile(r"Problem with given class_path '([\w.]+)':")
_UNKNOWN = re.compile(r"Option '([\w.]+)' is not accepted")
_MISSING = re.compile(r"the following arguments are required: (.+)")
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (.+)", re.DOTALL)
_PATH = re.compile(r"Expected a path but .*")
_NESTED = re.compile(r"NestedArg\(key='(.*?)', val='?(.*?)'?\)")
_QUOTE = "'"
_SHOWN = 3
"""The most options that are named for a beginning of their names."""
_KINDS = (
    (r"<class '([\w.]+)'>", r"\1"),
    (r"typing\.|collections\.abc\.| \| None|\bOptional|, NoneType", ""),
    (r"^\[(.*)\]$", r"\1"),
    (r"Literal\[([^\]]*)\]", lambda match: f"one of {match[1].replace(_QUOTE, '')}"),
    (r"\btuple\[str, str\]", "two texts, such as a b"),
    (r"\btuple\[float, float\]", "two numbers, such as [0.5, 0.2]"),
    (r"\b(?:tuple|list|Sequence)\[int(?:, \.\.\.)?\]", "whole numbers, such as 1 2 3"),
    (r"\b(?:tuple|list|Sequence)\[float(?:, \.\.\.)?\]", "numbers, such as 0.5 1 2"),
    (r"\b(?:tuple|list)\[str(?:, \.\.\.| \| dict.*)?\]", "texts, such as a b"),
    (r"\bdict\[str, Any\]", 'names with values, such as {"size": 16}'),
    (r"\btuple\[(one of .*), \.\.\.\]", r"values, each \1"),
    (r"\bint\b", "a whole number"),
    (r"\bfloat\b", "a number"),
    (r"\bbool\b", "true or false"),
    (r"\bstr\b", "a text"),
    (r"\b(?:tuple|list|Sequence)\b", "a list"),
)
"""Types, and their names in plain English, replaced in this order."""
_EXPECTED = re.compile(r"Expected a (.+?)(?:\. Got value: (.*))?")


class PlainParser(ArgumentParser):
    """jsonargparse's parser, with errors of one line instead of the whole usage.

    Options are not abbreviated: the beginning of a name may mean another option in the next version.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def add_function_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the parameters of a function as options."""
        with _mended():
            return super().add_function_arguments(*args, **kwargs)

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        with _mended():
            added: list[str] = super().add_class_arguments(*args, **kwargs)
        return added

    def instantiate(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().instantiate(*args, **kwargs)
        except ValueError as error:  # of options that may be null; ours is within its text
            raise ConfigError(plain_option_error(str(error), self)) from error

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error or os.environ.get("JSONARGPARSE_DEBUG"):
            super().error(message, ex)
        line = plain_option_error(message, self)
        sections = [name for name in _sections(self) if f"--{name}." in worded(line)]
        folded = sections and len(self._actions) > _MOST
        asked = Option("help", max(sections, key=len)) if folded else Option("help")
        raise OptionError(f"{line}\n`{self.prog} {asked}` lists the options.") from ex


@contextmanager
def _mended() -> Iterator[None]:
    """A context in which jsonargparse reads the docstrings of all base classes, not only of the first one.

    And it skips imports under TYPE_CHECKING: they take seconds, and no option needs them.
    """
    from jsonargparse import _parameter_resolvers, _postponed_annotations

    visitor: Any = _postponed_annotations.TypeCheckingVisitor
    resolvers: Any = _parameter_resolvers
    read, update_aliases = resolvers.parse_docs, visitor.update_aliases

    def docs(component: Any, parent: Any, logger: Any) -> dict[str, str]:
        bases = parent.__mro__[:0:-1] if isclass(parent) and is_dataclass(parent) else ()
        inherited = (read(base, None, logger) for base in bases if is_dataclass(base))
        return {
            name: text
            for texts in (*inherited, read(component, parent, logger))
            for name, text in texts.items()
        }

    visitor.update_aliases, resolvers.parse_docs = lambda *_: None, docs
    try:
        yield
    finally:
        visitor.update_aliases, resolvers.parse_docs = update_aliases, read


_OTHER_NAMES = {
    "filter": "where",
    "filters": "where",
    "topk": "k",
    "n": "k",
    "gpu": "device",
    "cuda": "device",
}
"""Names of options in other programs, and ours."""


def is_list(kind: object) -> bool:
    return re.match(r"(typing\.Optional\[)?(collections\.abc\.Sequence|list|tuple)\b", str(kind)) is not None


def plain_option_error(message: str, parser: ArgumentParser) -> str:
    """An error of jsonargparse in one line, with the option that may be meant."""
    kinds = {action.dest: str(getattr(action, "_typehint", None)) for action in parser._actions}
    lists = {name: kind for name, kind in kinds.items() if is_list(kind)}
    line = plain_error(message, parser.prog, lists)
    actions = {name: action for action in parser._actions for name in action.option_strings}
    options = [name[2:] for name in actions if name.startswith("--")]
    positionals = [action.dest for action in parser._actions if not action.option_strings]
    if match := _UNRECOGNIZED.fullmatch(line):
        words = match[1].split()
        wrong = next((word for word in words if word.startswith("-")), None)
        if wrong is not None:
            wrong = wrong.partition("=")[0]
            name = wrong.lstrip("-")
            if name in options:  # -k
                return f"there is no option {wrong}; did you mean {Option(name)}?"
            return _no_option(name, options)
        takes = f"takes {' and '.join(positionals)}, and options" if positionals else "takes only options"
        return f"the argument {words[0]!r} has no place: `{parser.prog}` {takes}. Write `{usage(parser)}`."
    if match := _MISSING.fullmatch(line):
        names = match[1].split(", ")
        return _needed(f"the argument {name}" if name in positionals else name.lstrip("-") for name in names)
    if match := re.fullmatch(r"argument --([\w.]+)(?:/\S+)?: expected (?:one|at least one) argument", line):
        truth = "bool" in str(getattr(actions.get(f"--{match[1]}"), "_typehint", ""))
        return f"{Option(match[1])} needs a value" + (
            f": {Option(match[1], True)}, or false." if truth else "."
        )
    config = f"the file of {Option('config')}"
    if match := _UNKNOWN.fullmatch(line):
        return f"{config}: {_no_option(match[1], options, str)}"
    if match := re.fullmatch(r"Group '([\w.]+)' does not accept option '([\w.]+)'", line):
        return _no_option(f"{match[1]}.{match[2]}", options)
    if match := re.search(r"""Parser key "(\w+)":\s+Unable to load config '([^']+)'""", message):
        within = {dest: kind for dest, kind in kinds.items() if dest.startswith(f"{match[1]}.")}
        meant = next((dest for dest, kind in within.items() if _takes(kind, match[2])), None)
        hint = f"; did you mean {Option(meant, match[2])}?" if meant else "; give a file of YAML."
        return f"{Option(match[1])}: {match[2]} cannot be read{hint}"
    if match := re.match(r"Problems parsing config: (.+)", line, re.DOTALL):
        return f"{config} is no YAML: {' '.join(match[1].split())}."
    return line


def usage(parser: ArgumentParser, written: Callable[[str, str], object] = Option) -> str:
    """A command with what it needs."""
    forms = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}
    places = [one for one in parser._actions if not one.option_strings]
    given = [forms.get(str(one.nargs), "{}").format(one.dest.upper()) for one in places]
    needed = [one.dest for one in parser._actions if one.option_strings and one.required]
    values = (f"{written(name, name.rpartition('.')[2].upper())}" for name in needed)
    return " ".join([parser.prog, *given, *values])


_MOST = 25
"""Options that are explained at once."""


def fold_sections(parser: ArgumentParser, asked: Sequence[str]) -> None:
    """Name the options of sections that are not asked for, where there are too many to explain.

    A section has no file of its own in the help: ``--config`` takes the options of all.
    """
    from jsonargparse._actions import _ActionConfigLoad

    sections = _sections(parser)
    for action in parser._actions:
        if isinstance(action, _ActionConfigLoad):
            action.help = SUPPRESS
    if sections and (unknown := [name for name in asked if name not in {*sections, "all"}]):
        raise ConfigError(f"there is no section {unknown[0]!r} of options: {', '.join([*sections, 'all'])}.")
    if "all" in asked or len(parser._actions) <= _MOST:
        return
    for name, group in sections.items():
        if name not in asked:
            inner = [one.dest.removeprefix(f"{name}.") for one in group._group_actions if one.dest != name]
            shown = ", ".join(one for one in inner if not one.endswith("help"))
            group.description = f"{' '.join(str(group.title).split())}: {shown}"
            group.title = f"--{name}.… (`{parser.prog} --help {name}`)"
            for action in group._group_actions:
                action.help = SUPPRESS


def _sections(parser: ArgumentParser) -> dict[str, Any]:
    return {group.dest: group for group in parser._action_groups if group.dest is not None}


def _takes(kind: str, value: str) -> bool:
    """Whether a type of names or numbers takes the value."""
    return repr(value) in kind or (
        value.isdigit() and re.match(r"(typing\.Optional\[|<class ')?int\b", kind) is not None
    )


def _no_option(wrong: str, options: list[str], written: Callable[[str], object] = Option) -> str:
    names = [name for name in options if not name.endswith(".help")]
    last = wrong.rpartition(".")[2]
    ends = [(name, name.rpartition(".")[2]) for name in names]
    near = [name for name in names if wrong and name.startswith(wrong)][:_SHOWN]
    near = near or [name for name in names if name == _OTHER_NAMES.get(wrong.rpartition(".")[2])]
    near = near or get_close_matches(wrong, [name for name, end in ends if end == last], 1, 0.0)
    near = near or get_close_matches(wrong, names, 1, 0.75)
    near = near or [name for name, end in ends if end in last.split("_")][:1]  # top_k: k
    meant = f"; did you mean {' or '.join(f'{written(name)}' for name in near)}?" if near else "."
    return f"there is no option {written(wrong)}{meant}"


def plain_error(message: str, command: str = "grls train", types: Mapping[str, str] | None = None) -> str:
    """Shorten an error of jsonargparse to the option and the reason; other messages stay as they are.

    The message has a line for each type that was tried and for each class around the option. ``types`` has
    the types of options that are lists, which the message does not say.
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
    plain = (_plain_reason(reason, path, owner, command, types or {}) for reason in reasons)
    return "; ".join(dict.fromkeys(plain))


def _plain_reason(reason: str, path: list[str], owner: str, command: str, types: Mapping[str, str]) -> str:
    name = ".".join(path)
    if match := _UNKNOWN.fullmatch(reason):
        bases = getattr(locate(owner), "__mro__", ())
        makers = [vars(base)["__init__"] for base in bases if base is not object and "__init__" in vars(base)]
        options = {name for maker in makers for name in signature(maker).parameters}
        near = get_close_matches(match[1], options - {"self", "args", "kwargs"}, 1)
        hint = f"; did you mean {Option(f'{name}.{near[0]}')}?" if near else "."
        if len(path) == 1:
            hint += f" `{command} {Option(f'{name}.help')} {owner}` lists them."
        return f"{Option(f'{name}.{match[1]}')} is no option of {owner}{hint}"
    if path and (match := _UNRECOGNIZED.fullmatch(reason)):
        return f"unrecognized arguments: --{name}.{match[1].removeprefix('--')}"  # see plain_option_error
    if match := _MISSING.fullmatch(reason):
        return _needed(".".join([*path, inner]) for inner in match[1].split(", "))
    if match := _EXPECTED.fullmatch(reason):
        if within := _NESTED.fullmatch(match[2] or ""):  # the value takes no options, or is not a class
            last = "" if name.endswith(f".{within[1]}") else f".{within[1]}"
            return f"{Option(name + last)}: cannot take {within[2]}."
        got = "." if match[2] is None else f", got {match[2]}."
        kind = types.get(name, match[1])
        for pattern, words in _KINDS:
            kind = re.sub(pattern, words, kind)
        return f"{Option(name)}: expected {kind}{got}"
    if "instantiatable class" in reason:
        return f"{Option(name)}: expected a name, with init_args where it has options."
    return f"{Option(name)}: {reason}" if path else reason


def _needed(names: Iterable[str]) -> str:
    named = [name if " " in name else f"{Option(name)}" for name in names]
    return f"{' and '.join(named)} must be given."


_WIDEST_NAME = 16
_MARGIN = "  "


def name_lines(texts: Mapping[str, str]) -> str:
    """Names with their texts, aligned and wrapped for the terminal."""
    edge = max([_WIDEST_NAME, *(len(name) + 1 for name in texts)]) + len(_MARGIN) + 1
    lines = []
    for name, text in texts.items():
        rows = textwrap.wrap(text, max(_columns() - edge, 20), break_on_hyphens=False) or [""]
        lines += [f"{_MARGIN}{name}".ljust(edge) + rows[0], *(" " * edge + row for row in rows[1:])]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _columns() -> int:
    return shutil.get_terminal_size().columns - 2  # as argparse


def paragraphs(text: str, width: int | None = None, indent: str = "") -> str:
    """A text with each paragraph filled; an indented paragraph is a list, and stays."""
    width = width or _columns()
    parts = [part.strip("\n") for part in re.split(r"\n\s*\n", text)]
    filled = [
        part
        if part.startswith(_MARGIN)
        else textwrap.fill(part, width, initial_indent=indent, subsequent_indent=indent)
        for part in parts
    ]
    return "\n\n".join(filled)


class InParagraphs(DefaultHelpFormatter):
    """Formats the help of a command."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return paragraphs(text, width, indent)

    def _get_help_string(self, action: Action) -> str:
        said = action.help or ""
        if action.dest == "config" or action.default in (None, SUPPRESS):
            return said
        shown = str(action.default).lower() if isinstance(action.default, bool) else "%(default)s"
        return f"{said} (default: {shown})" if action.option_strings else said
