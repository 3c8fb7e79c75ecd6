"""Temporary folders of objects: what an object keeps on disk goes when the object goes.

A retriever is a folder. The folder of one that is made without ``output`` is temporary, and belongs to the
object that users hold; errors name the object in its place. What a killed process leaves is removed when the
next temporary folder is made.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, GrlsError, WriteError
from grls.io.files import NEW, temporary
from grls.retrieve.spec import MANIFEST

_PATH = re.compile(r"(?<![\w/.~-])(?:[^\s/:;,'\"()\[\]]*/)+[^\s/:;,'\"()\[\]]*[^\s/:;,'\"()\[\].]")
"""A path with a separator, without the full stop of its sentence."""


class HeldFolder:
    """The folder of a retriever that is made, with those of its members.

    A temporary folder is removed with this object, or at the end of the process; a forked process does not
    remove the folders of its parent. A composite retriever holds the objects of its members, so their folders
    stay as long as it names them.

    Attributes:
        path: The folder.
        path_is_temporary: Whether the folder itself is removed with this object.
        members: The folders of its members.

    Args:
        output: The folder that the user has named; None: a temporary folder.
        members: The folders of its members.

    Raises:
        WriteError: A temporary folder cannot be made.
    """

    def __init__(self, output: str | Path | None = None, members: Sequence[HeldFolder] = ()):
        self.path_is_temporary = output is None
        self.members = tuple(members)
        if output is not None:
            self.path = Path(output)
            return
        held = ExitStack()
        try:
            self.path = held.enter_context(temporary(Path(tempfile.gettempdir()) / "grls")) / NEW
            self.path.mkdir()
        except OSError as error:
            held.close()
            raise WriteError(
                f"cannot make a temporary folder: {error}; free disk space, set TMPDIR to a folder that can "
                "be written, or say where by output=."
            ) from error
        weakref.finalize(self, held.close)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which may be read in another working directory.

        Raises:
            ConfigError: It is temporary.
        """
        if self.temporary:
            raise ConfigError(
                "what is in a temporary folder, or has a member there, cannot be pickled: the folder goes "
                "with the object that made it. Save it with save(folder), or make it and its members with "
                "output=folder, and open that folder."
            )
        return {**vars(self), "path": self.path.absolute()}

    def __copy__(self) -> HeldFolder:
        return self  # the folder goes with the last object that holds it

    def __deepcopy__(self, memo: dict[int, Any]) -> HeldFolder:
        return self

    @property
    def temporary(self) -> bool:
        """Whether it, or the folder of a member, is removed with this object."""
        return self.path_is_temporary or any(member.temporary for member in self.members)

    @contextmanager
    def named(self, call: str, names: Mapping[Path, str] | None = None) -> Iterator[None]:
        """A context whose errors name folders as the caller does.

        The library names ``../../tmp/x/grls.json``. The caller finds the call in its place, or the argument
        that the temporary folder belongs to.

        Args:
            call: The name of the call that writes this folder, or is about it.
            names: The folders of other retrievers -> what the caller calls them.
        """
        try:
            yield
        except GrlsError as error:
            text, here = error.text, _plain(self.path)
            folders = self._names("this retriever") | {
                _plain(one): name for one, name in (names or {}).items()
            }
            if self.path_is_temporary:
                folders[here] = call
                for place in (self.path, here, here.resolve()):
                    if text.startswith(f"{place}/{MANIFEST}: "):
                        text = f"{call}: {text.partition(': ')[2]}"
            text = _PATH.sub(lambda path: _called(path[0], here, folders), text)
            error.args = (text, *error.args[1:])
            raise

    def _names(self, name: str) -> dict[Path, str]:
        """Its temporary folder and those of its members -> their names."""
        names = {_plain(self.path): name} if self.path_is_temporary else {}
        for member in self.members:
            names |= member._names(f"a member of {name.removeprefix('a member of ')}")
        return names


def _called(path: str, here: Path, names: Mapping[Path, str]) -> str:
    """What the caller calls a path: the name of its folder, or the path as it would be written.

    Args:
        path: The path, which may be relative to a folder.
        here: The folder.
        names: Folders -> what the caller calls them.
    """
    if not path.startswith(("/", "..")) and here / path not in names and Path(path) not in names:
        return path
    plain = _plain(here / path)
    for folder in (plain, *plain.parents):
        if folder in names:
            name, rest = names[folder], plain.relative_to(folder).as_posix()
            if rest == ".":
                return name
            if "/" in name or Path(name).is_dir():
                return f"{name}/{rest}"
            return f"the corpus of {name}" if rest == "corpus.jsonl" else f"{rest} of {name}"
    if ".." not in Path(path).parts:
        return path
    current = Path.cwd()
    return str(plain.relative_to(current) if plain.is_relative_to(current) else plain)


def _plain(folder: Path) -> Path:
    """The absolute path of a folder, with its links as they are."""
    return Path(os.path.normpath(folder.absolute()))
