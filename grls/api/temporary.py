"""Temporary folders of objects: what an object keeps on disk goes when the object goes.

A retriever is a folder. The folder of one that is made without ``output`` is temporary, and belongs to the
object that users hold. What a killed process leaves is removed when the next temporary folder is made.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, WriteError
from grls.io.temporary import NEW, temporary


def temporary_folder(owner: object) -> Path:
    """A new empty folder that is removed with its owner, or at the end of the process.

    A forked process does not remove the folders of its parent.

    Args:
        owner: The object that the folder belongs to; it must allow weak references.

    Raises:
        WriteError: The folder cannot be made.
    """
    held = ExitStack()
    try:
        folder = held.enter_context(temporary(Path(tempfile.gettempdir()) / "grls")) / NEW
        folder.mkdir()
    except OSError as error:
        held.close()
        raise WriteError(
            f"cannot make a temporary folder: {error}; free disk space, set TMPDIR to a folder that can be "
            "written, or say where by output=."
        ) from error
    weakref.finalize(owner, held.close)
    return folder


def folder_of(owner: object, output: str | Path | None) -> Path:
    """The folder of a retriever that is made: ``output``, or a temporary folder without it.

    Args:
        owner: The object that a temporary folder belongs to.
        output: The folder that the user has named; it may not exist yet.

    Raises:
        WriteError: A temporary folder cannot be made.
    """
    return temporary_folder(owner) if output is None else Path(output)


class HeldFolder:
    """The folder of a retriever that is made, with those of its members.

    A temporary folder is removed with this object. A composite retriever holds the objects of its members, so
    their folders stay as long as it names them.

    Args:
        output: The folder that the user has named; None: a temporary folder.
        members: The folders of its members.

    Raises:
        WriteError: A temporary folder cannot be made.
    """

    def __init__(self, output: str | Path | None = None, members: Sequence[HeldFolder] = ()):
        self.path = folder_of(self, output)
        self._temporary = output is None
        self.members = tuple(members)

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
    def path_is_temporary(self) -> bool:
        """Whether the folder itself is removed with this object."""
        return self._temporary

    @property
    def temporary(self) -> bool:
        """Whether it, or the folder of a member, is removed with this object."""
        return self._temporary or any(member.temporary for member in self.members)
