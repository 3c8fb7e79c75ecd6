"""Files that are appended to, each by one process at a time.

Two runs that append to one file (a requeued job whose first copy still lives) would write everything twice.
So whoever appends holds a lock on the file itself: it dies with the process, however that ends, and leaves
nothing behind. Within a process the last one that opened a file may write it. The module does not know what
is written.
"""

from __future__ import annotations

import logging
import os
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
"""Who in this process writes a file, by device and number."""


class LockedFile:
    """A file that this process alone appends to, until the object goes or the process ends.

    Args:
        path: The file; it and its folder are made where there are none.

    Raises:
        WriteError: Another process writes it, or it cannot be written.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        stream: BinaryIO
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            stream = self.path.open("ab")
        except OSError as error:
            raise WriteError(f"cannot write {path}: {error.strerror}; choose another place.") from error
        self._number = _number(os.fstat(stream.fileno()))
        if not _lock(stream):
            stream.close()
            stream = self._taken_over()
        self._stream: BinaryIO | None = stream
        _held[self._number] = self

    @property
    def size(self) -> int:
        """Its bytes."""
        return os.fstat(self._own().fileno()).st_size

    def append(self, content: bytes) -> None:
        """Add to the end; it is on disk when this returns.

        Raises:
            WriteError: The disk is full, or the file was removed or is written by someone else now.
        """
        stream = self._own()
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise WriteError(
                f"cannot write {self.path}: {error.strerror}; free some space and run the command again: it "
                "goes on where it stopped."
            ) from error

    def cut(self, size: int) -> None:
        """Drop what stands behind the first ``size`` bytes."""
        os.truncate(self._own().fileno(), size)

    def close(self) -> None:
        """Let others write it."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _own(self) -> BinaryIO:
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

    def _taken_over(self) -> BinaryIO:
        """What an earlier one of this process holds: that one writes no more."""
        earlier = _held.get(self._number)
        if earlier is None or earlier._stream is None:
            raise WriteError(
                f"{self.path} is being written by another run, which still lives: wait for it or end it, "
                "then run the command again; or give another output."
            )
        stream, earlier._stream = earlier._stream, None
        return stream


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lock(stream: BinaryIO) -> bool:
    """Whether the lock could be had; True where the file system has none."""
    if _ALONE is None:
        return True
    try:
        fcntl.flock(stream, _ALONE)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked here (%s): see that no other run writes it.", stream.name, error)
    return True
