"""Errors that name what a Python caller wrote.

The library below names options as the shell has them (``--hops.steps fixed``), and files as folders name them
(``../../tmp/x/grls.json``). A user of ``retriever.hops(steps="fixed")`` finds ``steps="fixed"`` and the
name of the call instead, and in place of a temporary folder the argument that it belongs to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from grls.api.temporary import HeldFolder
from grls.errors import GrlsError
from grls.retrieve.spec import MANIFEST

_VALUE = r"(?:(?:\d+[hms])+|\d+(?:\.\d+)?|true|false|null|single|fixed|dynamic|ranked|none|auto|rrf|sum)\b"
_OPTION = re.compile(rf"--((?:\w+\.)*\w+)(?:[ =]({_VALUE})(?: or ({_VALUE}))?)?")
_COMMAND = re.compile(r"(`grls [^`]*`)")
_PATH = re.compile(r"(?<![\w/.~-])(?:\.{1,2}/|/)?(?:[^\s/:;,'\"()\[\]]+/)*[^\s/:;,'\"()\[\]]+")
_WORDS = {"true": "True", "false": "False", "null": "None"}


@contextmanager
def named_as_called(
    call: str, place: HeldFolder, names: Mapping[Path, str] | None = None, dotted: bool = False
) -> Iterator[None]:
    """A context whose errors name the call and its arguments.

    Args:
        call: The name of the call.
        place: The folder that the call writes, or that it is about.
        names: The folders of other retrievers -> what the caller calls them.
        dotted: Whether the call takes options by their dotted names.
    """
    try:
        yield
    except GrlsError as error:
        folders = {_plain(folder): name for folder, name in (names or {}).items()}
        text = _named(str(error), call, place, folders)
        error.args = (in_python(text, dotted), *error.args[1:])
        raise


def in_python(text: str, dotted: bool = False) -> str:
    """A text with options as Python has them: ``--hops.steps fixed`` -> ``steps="fixed"``.

    Commands between backticks stay as they are.

    Args:
        text: The text.
        dotted: Whether options keep their sections (``hops.steps``).
    """
    return with_options(text, lambda name, values: _argument(name, values, dotted))


def with_options(text: str, write: Callable[[str, Sequence[str]], str]) -> str:
    """A text whose options of the shell are written in another way; commands between backticks stay.

    Args:
        text: The text.
        write: Writes an option; takes its dotted name and the values that the text names, none or more.
    """
    parts = _COMMAND.split(text)
    return "".join(
        part if place % 2 else _OPTION.sub(lambda match: write(match[1], _values(match)), part)
        for place, part in enumerate(parts)
    )


def _values(match: re.Match[str]) -> list[str]:
    return [value for value in match.groups()[1:] if value is not None]


def _argument(option: str, values: Sequence[str], dotted: bool) -> str:
    name = option if dotted else option.rpartition(".")[2]
    return f"{name}={' or '.join(map(_value, values))}" if values else name


def _value(value: str) -> str:
    if value in _WORDS:
        return _WORDS[value]
    return value if value.replace(".", "", 1).isdigit() else f'"{value}"'


def _named(text: str, call: str, place: HeldFolder, names: Mapping[Path, str]) -> str:
    """A text with the names of folders in place of their paths."""
    here = _plain(place.path)
    known = {**_within(place, "this retriever"), **names}
    if place.path_is_temporary:
        known[here] = call
    start = f"{place.path}/{MANIFEST}: "
    prefixed = text.startswith((start, f"{here}/{MANIFEST}: ", f"{here.resolve()}/{MANIFEST}: "))
    if prefixed and place.path_is_temporary:
        text = f"{call}: {text.partition(': ')[2]}"
    return _PATH.sub(lambda match: _path(match[0], here, known) if "/" in match[0] else match[0], text)


def _within(place: HeldFolder, name: str) -> dict[Path, str]:
    """The temporary folders of a retriever and of its members -> their name."""
    folders = {_plain(place.path): name} if place.path_is_temporary else {}
    for member in place.members:
        folders |= _within(member, f"a member of {name.removeprefix('a member of ')}")
    return folders


def _path(path: str, here: Path, names: Mapping[Path, str]) -> str:
    """What the caller calls a path; other paths are made plain."""
    if not path.startswith(("/", "..")) and here / path not in names and Path(path) not in names:
        return path
    dot = "." if path.endswith(".") and not path.endswith("..") else ""
    plain = Path(os.path.normpath(here / path.removesuffix(dot)))
    for folder in (plain, *plain.parents):
        if folder in names:
            rest = plain.relative_to(folder).as_posix()
            return _part(names[folder], rest) + dot
    return f"{_shortened(plain)}{dot}" if ".." in Path(path).parts else path


def _plain(folder: Path) -> Path:
    """The absolute path of a folder, with its links as they are."""
    return Path(os.path.normpath(folder.absolute()))


def _part(name: str, rest: str) -> str:
    if rest == ".":
        return name
    if "/" in name or Path(name).is_dir():
        return f"{name}/{rest}"
    return f"the corpus of {name}" if rest == "corpus.jsonl" else f"{rest} of {name}"


def _shortened(path: Path) -> str:
    """A path below the current folder as the caller would write it."""
    current = Path.cwd()
    return str(path.relative_to(current)) if path.is_relative_to(current) else str(path)
