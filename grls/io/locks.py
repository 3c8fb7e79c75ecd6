"""Files that are appended to, and folders of trainings, each written by one process at a time.

Two runs that append to one file (a requeued job whose first copy still runs) would write everything twice. So
a writer holds a lock on the file itself. The lock ends with the process, however the process ends, and leaves
nothing behind. Within one process, the object that opened the file last may write it, unless it is told to
refuse a file that another object has open. A folder is locked as a whole, by a lock on itself. The module
does not know what is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from grls.errors import WriteError

try:
    import fcntl
except ImportError:  # Windows
    _ALONE = None
else:
    _ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB

log = logging.getLogger(__name__)

_held: WeakValueDictionary[tuple[int, int], LockedFile] = WeakValueDictionary()
"""Device and inode of a file -> the object that writes it in this process."""


class LockedFile:
    """A file to which only this process appends, until the object is deleted or the process ends.

    Args:
        path: The file; it and its folder are made if missing.
        alone: Whether a file that another object of this process has open is refused. Otherwise it is taken
            over, and the other object may not write it any more.

    Raises:
        WriteError: Another process, or another object, writes the file, or it cannot be written.
    """

    def __init__(self, path: str | Path, alone: bool = False):
        self.path = Path(path)
        stream: BinaryIO
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            stream = self.path.open("ab")
        except OSError as error:
            raise WriteError(f"cannot write {path}: {error.strerror}; choose another place.") from error
        self._number = _number(os.fstat(stream.fileno()))
        if not _lock(stream.fileno(), self.path):
            stream.close()
            stream = self._taken_over(alone)
        self._stream: BinaryIO | None = stream
        _held[self._number] = self

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return os.fstat(self._writable().fileno()).st_size

    def append(self, content: bytes) -> None:
        """Append to the file; the content is on disk when this returns.

        Raises:
            WriteError: The disk is full, the file was removed, or another object writes it now.
        """
        stream = self._writable()
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise WriteError(
                f"cannot write {self.path}: {error.strerror}; free some space and run the command again: it "
                "resumes where it stopped."
            ) from error

    def cut(self, size: int) -> None:
        """Drop everything after the first ``size`` bytes."""
        os.truncate(self._writable().fileno(), size)

    def close(self) -> None:
        """Release the lock, so that others may write the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _writable(self) -> BinaryIO:
        if self._stream is None:
            raise WriteError(f"{self.path}: another run in this process writes it now; this one has ended.")
        try:
            same = _number(self.path.stat()) == self._number
        except FileNotFoundError:
            same = False
        if not same:
            raise WriteError(
                f"{self.path} was removed or replaced while it was written; run the command again."
            )
        return self._stream

    def _taken_over(self, alone: bool) -> BinaryIO:
        """The stream of an earlier object of this process, which may not write any more."""
        earlier = _held.get(self._number)
        if alone or earlier is None or earlier._stream is None:
            raise _written(self.path)
        stream, earlier._stream = earlier._stream, None
        return stream


@contextmanager
def alone_in(folder: str | Path) -> Iterator[None]:
    """Hold a folder, so that no other run writes it. It is made if missing, and removed if it stays empty.

    The lock ends with the process, and leaves nothing behind.

    Raises:
        WriteError: Another run holds the folder, or it cannot be made.
    """
    place = Path(folder)
    try:
        made = [each for each in (place, *place.parents) if not each.exists()]
        held = _held_folder(place)
    except OSError as error:
        raise WriteError(f"cannot write {folder}: {error.strerror}; choose another place.") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for each in made:
                each.rmdir()
        if held is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_UN)  # also for processes that were forked meanwhile
            os.close(held)


def _held_folder(place: Path) -> int | None:
    """A folder that is made if missing, open and locked; None where there are no locks.

    Another run may remove the folder, as it ends, between the opening and the lock: then it is made anew.

    Raises:
        OSError: It cannot be made.
        WriteError: Another run holds it.
    """
    while True:
        place.mkdir(parents=True, exist_ok=True)
        if _ALONE is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            held = os.open(place, os.O_RDONLY)
            if not _lock(held, place):
                os.close(held)
                raise _written(place)
            if place.is_dir() and _number(place.stat()) == _number(os.fstat(held)):
                return held
            os.close(held)


def _written(path: Path) -> WriteError:
    return WriteError(
        f"{path} is being written by another run: wait for it or end it, then run the command again; or give "
        "another output."
    )


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lock(stream: int, path: Path) -> bool:
    """Whether the lock was acquired; True if the file system has no locks."""
    if _ALONE is None:
        return True
    try:
        fcntl.flock(stream, _ALONE)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked here (%s): make sure that no other run writes it.", path, error)
    return True
