"""Temporary folders beside a destination, and the removal of those whose process has died.

A writer works in a separate folder, ``.NAME.MACHINE-PID.XXXX.tmp``, and holds a lock on a file in it. A kill
or a power cut leaves the folder, but the lock ends with the process. So the next writer of the same name on
the same machine removes folders without a lock, and first moves back what a dead writer had moved away.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no writer is ever taken for dead
    _ALONE = None
else:
    _ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB

log = logging.getLogger(__name__)

NEW = "new"
"""The name of the new content while it is written."""
OLD = "old"
"""The name of the old content while it is replaced."""
_LOCK = "lock"
_HELD = b"held"
"""The content of a lock file once the lock is held."""
_YOUNG = 60
"""Seconds within which a live writer may not have its lock yet."""
_LONGEST = 200
"""The longest name in bytes that leaves room for the rest of a temporary name."""
_OURS = re.compile(r"(?P<host>[0-9a-f]{4})(?P<boot>[0-9a-f]{4})-(?P<pid>\d+)\.\w+\.tmp")
"""The part of a temporary name after the destination's name."""
_EXCHANGE, _HERE = 2, -100
"""The system's RENAME_EXCHANGE and AT_FDCWD."""


@contextmanager
def temporary(final: Path) -> Iterator[Path]:
    """Yield a new empty folder beside ``final``; it is removed when the block ends, also after an error.

    A process that is forked within the block does not remove it.

    Raises:
        OSError: The folder cannot be made.
    """
    clean(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    process = os.getpid()
    prefix = f".{_stem(final)}.{_machine()}-{process}."
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=final.parent))
    try:
        with (folder / _LOCK).open("wb") as lock:
            if _ALONE is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(lock, _ALONE)
            lock.write(_HELD)
            lock.flush()
            yield folder
    finally:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)


def is_temporary(path: str | Path) -> bool:
    """Whether a path leads through a temporary folder, which has no name that a user knows."""
    return any(_OURS.search(part) for part in Path(path).parts if part.endswith(".tmp"))


def clean(final: Path) -> None:
    """Remove the folders that dead writers of ``final`` left beside it; first put back what they moved."""
    begin = f".{_stem(final)}."
    try:
        folders = [entry for entry in final.parent.iterdir() if entry.name.startswith(begin)]
    except OSError:
        return
    for folder in folders:
        match = _OURS.fullmatch(folder.name.removeprefix(begin))
        if match is None:
            continue
        if _is_here(match["host"], match["boot"]) and _is_dead(folder, int(match["pid"])):
            _put_back(folder, final)
            shutil.rmtree(folder, ignore_errors=True)
            log.info("removed %s, which a run that died has left.", folder)


def put(new: Path, final: Path, room: Path) -> None:
    """Rename a folder to its final name; what had this name before is left in ``room``, to be removed.

    Both names are exchanged in one step if the system can. Otherwise the old folder is moved away first. A
    failure moves it back; after a kill :func:`clean` does.

    Raises:
        OSError: The folder cannot be renamed; ``final`` is as it was.
    """
    if not final.exists():
        new.rename(final)
        return
    if exchange(new, final):
        return
    final.rename(room / OLD)
    try:
        new.rename(final)
    except OSError:
        (room / OLD).rename(final)
        raise


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _put_back(folder: Path, final: Path) -> None:
    """Move back what a dead writer had moved away, unless the name is in use again."""
    if (folder / OLD).exists() and not final.exists():
        with contextlib.suppress(OSError):
            (folder / OLD).rename(final)
            log.warning("%s is restored: a run died while it replaced it.", final)
            folder.rmdir()


def _stem(final: Path) -> str:
    """The name, or a hash of a name that is too long to be extended."""
    name = os.fsencode(final.name)
    return final.name if len(name) <= _LONGEST else hashlib.sha256(name).hexdigest()[:16]


@cache
def _machine() -> str:
    """Four hexadecimal digits for the name of this machine, and four that identify it among its namesakes.

    The identity is the id of the last boot; where the system does not know it (no ``/proc``), the network
    card; where that is unknown, too, the name again.
    """
    name, identity = socket.gethostname(), _boot() or _card() or socket.gethostname()
    return "".join(hashlib.sha256(part.encode()).hexdigest()[:4] for part in (name, identity))


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""


def _card() -> str:
    number = uuid.getnode()
    return "" if number >> 40 & 1 else f"{number:012x}"  # this bit marks a number that Python drew at random


def _is_here(host: str, boot: str) -> bool:
    """Whether the digits of :func:`_machine` are those of this machine.

    The identity decides, since the name of a container changes. The name decides as well if the identity is
    a boot id, which changes at a restart, or if the network card is unknown.
    """
    return boot == _machine()[4:] or (bool(_boot() or not _card()) and host == _machine()[:4])


def _is_dead(folder: Path, process: int) -> bool:
    """Whether the writer of a folder has died.

    A young folder may not be locked yet. It counts as live if its process lives, or if its lock file does not
    say that the lock was held (the process may run in another container and be invisible here).
    """
    young = True  # a folder that has gone meanwhile
    try:
        young = time.time() - folder.stat().st_mtime < _YOUNG
        if (young and _lives(process)) or _ALONE is None:
            return False
        with (folder / _LOCK).open("rb+") as lock:
            fcntl.flock(lock, _ALONE)
            return not young or lock.read() == _HELD
    except FileNotFoundError:
        return not young and not (folder / _LOCK).exists() and folder.exists()
    except OSError:
        return False


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
