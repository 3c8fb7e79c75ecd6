"""Temporary places beside a destination, and what becomes of those whose process has died.

A writer works in a folder of its own, ``.NAME.MACHINE-PID.XXXX.tmp``, and holds a lock on a file in it. A
kill, or a power cut, leaves the folder; the lock goes with the process. So the next writer of the same name
on the same machine removes what nobody holds any more, and what was taken away to make room is put back.
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
except ImportError:  # Windows: nothing is ever taken for dead
    _ALONE = None
else:
    _ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB

log = logging.getLogger(__name__)

NEW = "new"
"""What is being written."""
OLD = "old"
"""What it replaces, while it does."""
_LOCK = "lock"
_HELD = b"held"
"""What a lock's file says once the lock is held."""
_YOUNG = 60
"""Seconds in which a writer that lives may not have its lock yet."""
_LONGEST = 200
"""Bytes of a name that leave room for ours around it."""
_OURS = re.compile(r"(?P<host>[0-9a-f]{4})(?P<boot>[0-9a-f]{4})-(?P<pid>\d+)\.\w+\.tmp|\w+\.old")
"""What follows the name."""
_EXCHANGE, _HERE = 2, -100
"""The system's RENAME_EXCHANGE and AT_FDCWD."""


@contextmanager
def temporary(final: Path) -> Iterator[Path]:
    """Yield a new empty folder beside ``final`` that goes when the block ends, whatever ended it.

    Raises:
        OSError: It cannot be made.
    """
    clean(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{_stem(final)}.{_machine()}-{os.getpid()}."
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
        shutil.rmtree(folder, ignore_errors=True)


def clean(final: Path) -> None:
    """Remove what dead writers of ``final`` have left beside it, once what they took away is back."""
    begin = f".{_stem(final)}."
    try:
        left = [some for some in final.parent.iterdir() if some.name.startswith(begin)]
    except OSError:
        return
    for folder in left:
        found = _OURS.fullmatch(folder.name.removeprefix(begin))
        if found is None:
            continue
        if found["pid"] is None:  # an earlier version's, which held what it replaced and no lock
            _put_back(folder, final)
        elif _is_here(found["host"], found["boot"]) and _is_dead(folder, int(found["pid"])):
            _put_back(folder, final)
            shutil.rmtree(folder, ignore_errors=True)
            log.info("removed %s, which a run that died has left.", folder)


def put(new: Path, final: Path, room: Path) -> None:
    """Give a folder its name; what had it is left in ``room``, to be removed.

    Both names are exchanged at once where the system can. Where not, the earlier one is moved away first; a
    failure puts it back, and after a kill :func:`clean` does.

    Raises:
        OSError: It cannot be done; ``final`` is as it was.
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
    """Exchange two names at once; False where the system or the file system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _put_back(folder: Path, final: Path) -> None:
    """Give what a dead writer had moved away its name again, where no other has it."""
    if (folder / OLD).exists() and not final.exists():
        with contextlib.suppress(OSError):
            (folder / OLD).rename(final)
            log.warning("%s is as it was before a run that died while it replaced it.", final)
            folder.rmdir()


def _stem(final: Path) -> str:
    """The name, or what stands for one that is too long to be lengthened."""
    name = os.fsencode(final.name)
    return final.name if len(name) <= _LONGEST else hashlib.sha256(name).hexdigest()[:16]


@cache
def _machine() -> str:
    """Four digits for the name of this machine, four for what tells it from others of that name.

    That is when it was started, and its network card where the system does not say (no ``/proc``); a card
    that is not known tells nothing, so the name stands for it.
    """
    name, told = socket.gethostname(), _boot() or _card() or socket.gethostname()
    return "".join(hashlib.sha256(part.encode()).hexdigest()[:4] for part in (name, told))


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""


def _card() -> str:
    number = uuid.getnode()
    return "" if number >> 40 & 1 else f"{number:012x}"  # that bit is set where Python has drawn a number


def _is_here(host: str, boot: str) -> bool:
    """Whether it is this machine: by its name (a container's changes), or by what tells it from others.

    What tells a machine by its card is the same after a restart, so there the name alone is not enough.
    """
    return boot == _machine()[4:] or (bool(_boot() or not _card()) and host == _machine()[:4])


def _is_dead(folder: Path, process: int) -> bool:
    """Whether no process holds a folder.

    A young one may not have its lock yet: so it is where its process lives, and where the lock's file does
    not say that the lock was ever held (its process may be one of another container, which cannot be seen).
    """
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
