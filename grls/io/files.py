"""Atomic writing: a file name holds the whole content, or the file does not exist.

Content is written under a temporary name in the same folder and renamed at the end; of a symbolic link the
target is written. Below: files mapped into memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from grls.errors import ConfigError, DataError, GrlsError, WriteError

log = logging.getLogger(__name__)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file for writing; it appears under ``path`` only once it is complete."""
    with atomic_path(path) as new, new.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""The error numbers of the system that mean: this file cannot be written."""

_NAME, _ENDING = 255, 20
"""The longest file name in bytes, and how many bytes grls may add to a name."""

_WRAPPED = ("(os error ", "inline_container", "PytorchStreamWriter", "iostream error")
"""Parts of the error texts of other libraries that wrap an error of the system."""


def is_write_failure(error: BaseException) -> bool:
    """Whether a full disk or a missing permission caused an error, also if a library wraps it."""
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        return True
    return any(sign in str(error) for sign in _WRAPPED)


def without_ending(output: str, endings: Iterable[str]) -> str:
    """``output`` without an ending that will be added to it."""
    ending = next((end for end in endings if output.endswith(end) and Path(output).name != end), "")
    return output.removesuffix(ending)


def refuse_unwritable(path: str | Path, folder: bool = False) -> None:
    """Refuse a destination that cannot be written, before hours of work are lost on it.

    ``path`` may be the common beginning of several file names.
    """
    name = Path(path).name
    if not folder and (str(path).endswith(("/", os.sep)) or name in ("", "..")):
        raise ConfigError(f"{path} names a folder, and files are written: add a name, such as {path}/mine.")
    if len(os.fsencode(name)) + _ENDING > _NAME:
        raise ConfigError(
            f"the name {name[:40]}… has {len(os.fsencode(name))} bytes, at most {_NAME - _ENDING} leave room "
            "for the endings that are added: choose a shorter name."
        )
    parent = Path(path).parent
    try:
        while not parent.exists():
            parent = parent.parent
        writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    except OSError:  # a folder above it that cannot be entered
        writable = False
    if not writable:
        raise _write_error(Path(path), OSError(errno.EACCES, "the folder cannot be written", str(parent)))


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``path`` when the block ends without an error.

    A folder there of another kind, without the file ``marker``, is never replaced.
    """
    final = _through(Path(path).absolute())
    refuse_foreign(final, marker)
    with _written(final) as new:
        yield new
        put(new, final)


def refuse_unusable(path: str | Path, marker: str) -> None:
    refuse_foreign(path, marker)
    refuse_unwritable(path, folder=True)


def refuse_foreign(path: str | Path, marker: str) -> None:
    folder = _through(Path(path).absolute())
    clean(folder)
    try:
        exists = folder.exists()
    except OSError as error:
        raise _write_error(folder, error) from None
    if exists and not folder.is_dir():
        raise ConfigError(f"{path} is a file and no folder can replace it; choose another place.")
    try:
        current, target = Path.cwd().resolve(), folder.resolve()
        holds_current = target == current or target in current.parents
    except OSError:
        holds_current = False
    if holds_current:
        raise ConfigError(
            f"{path} is the folder that this command runs in, or holds it, so it cannot be replaced; choose "
            "another place, or run the command elsewhere."
        )
    if folder.is_dir() and not (folder / marker).exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{path} exists and holds no {marker}, so it is not replaced; choose another folder or empty it."
        )


def _through(path: str | Path) -> Path:
    target = Path(path)
    return Path(os.path.realpath(target)) if os.path.islink(target) else target  # noqa: PTH114  no error if the name is too long


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path for a library to write; it replaces ``path`` at the end."""
    final = _through(path)
    with _written(final) as folder:
        yield folder / final.name
        (folder / final.name).replace(final)


@contextmanager
def _written(final: Path) -> Iterator[Path]:
    """A temporary folder; an error of the system while it is written names ``final``."""
    try:
        with temporary(final) as folder:
            yield folder
    except GrlsError:
        raise
    except Exception as error:
        if isinstance(error, OSError) or is_write_failure(error):
            raise _write_error(final, error) from error
        raise


def _write_error(path: Path, error: Exception) -> WriteError:
    reason = getattr(error, "strerror", None) or error
    return WriteError(
        f"cannot write {path}: {reason}; nothing was left under that name. "
        "Free disk space or choose another place, then run the command again."
    )


def write_json(path: str | Path, value: Any) -> None:
    with atomic_file(path) as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


def near_name(path: str | Path) -> str:
    """The end of the error of a path that is not there: a name beside it that is nearly its own, if any."""
    place = Path(path)
    try:
        beside = os.listdir(place.parent)  # noqa: PTH208
    except OSError:
        beside = []
    near = [] if place.name in beside else get_close_matches(place.name, beside, 1)
    return f"; did you mean {place.parent / near[0]}?" if near else "."


BOM = b"\xef\xbb\xbf"
"""The byte order mark, which some editors put before UTF-8 text; it is no part of the text."""


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, without its byte order mark; all line ends become line feeds."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError("no such file; expected a text.", path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8 text ({error}).", path) from None


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a UTF-8 file.

    Lines end with LF or CRLF only: other line ends of Unicode may be part of an id.
    """
    with Path(path).open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.removeprefix(BOM) if number == 1 else raw
            try:
                yield number, line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(f"expected UTF-8 text ({error}).", path, number) from None


def named_lines(path: str | Path, expected: str) -> list[tuple[int, str]]:
    """The lines of a file that names passages, with their numbers. All such files are read here.

    A name is the whole line, with white space at its edges. Blank lines are skipped. A lone carriage return
    is refused: it may be an old Mac line end. ``expected`` goes into the error.
    """
    if not Path(path).exists() or Path(path).is_dir():
        raise DataError(f"no such file; expected {expected}.", path)
    lines = [(number, line) for number, line in text_lines(path) if line.strip()]
    if not lines:
        raise DataError(f"the file is empty; expected {expected}.", path)
    for number, line in lines:
        if "\r" in line:
            raise DataError(
                f"{line[:60]!r} holds a carriage return; expected {expected}, each ended by a line feed.",
                path,
                number,
            )
    return lines


def read_json(path: str | Path) -> Any:
    if Path(path).exists() and not Path(path).is_file():
        kind = "a folder" if Path(path).is_dir() else "a pipe or a device"
        raise DataError(f"expected a file of JSON, and this is {kind}: copy the file from its source.", path)
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError("no such file.", path) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected a JSON document ({error}).", path) from None


def sha256(path: str | Path) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def other_format(version: Any, known: int) -> str:
    """The error text for a folder of another format."""
    if isinstance(version, int) and version < known:
        return f"format {version}: it was made by a version before 0.2; build it again with `grls index`."
    remedy = "install a newer grls, or build it again with `grls index`"
    return f"format {version!r}, and this version reads {known}: {remedy}."


def read_count(value: Any, name: str, content: str, example: int, file: Path) -> int | None:
    """A count above 0 that a JSON file holds as ``{name: count}``; None if the file holds null."""
    if value is None:
        return None
    count = value.get(name) if isinstance(value, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise DataError(f'expected {content} as {{"{name}": {example}}}, got {value!r}.', file)
    return count


try:
    import fcntl
except ImportError:  # Windows: no writer is ever taken for dead
    HAS_LOCKS = False
else:
    HAS_LOCKS = True


def lock(descriptor: int) -> None:
    if HAS_LOCKS:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Release a lock at once, also for processes that were forked meanwhile."""
    if HAS_LOCKS:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)


# A writer works in a folder of its own, ``.NAME.MACHINE.XXXX.tmp``, and holds a lock on a file in it. A kill
# or a power cut leaves the folder, but the lock ends with the process. So the next writer of the same name on
# the same machine removes folders without a lock. Where a dead writer had moved the old content into its
# folder, the content is moved back first.

NEW = "new"
"""The new content while it is written; it is made once the lock is held."""
OLD = "old"
"""The old content while it is replaced."""
_LOCK = "lock"
_YOUNG = 60
"""Seconds within which a live writer may not have its lock yet."""
_LONGEST = 200
"""The longest name in bytes that can be part of a temporary name."""
_OURS = re.compile(r"(?P<host>[0-9a-f]{4})(?P<boot>[0-9a-f]{4})\.\w+\.tmp")
"""The part of a temporary name after the destination's name."""
_BOOT = "/proc/sys/kernel/random/boot_id"
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100


@contextmanager
def temporary(path: str | Path) -> Iterator[Path]:
    """Yield a new empty folder beside ``path``; it is removed when the block ends, but not by a fork."""
    final = _through(Path(path).absolute())
    clean(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    process = os.getpid()
    prefix = f".{_stem(final)}.{_machine()}."
    work = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=final.parent))
    try:
        with (work / _LOCK).open("wb") as stream:
            with contextlib.suppress(OSError):  # a file system without locks
                lock(stream.fileno())
            (work / NEW).mkdir()
            yield work / NEW
    finally:
        if os.getpid() == process:
            shutil.rmtree(work, ignore_errors=True)


NOT_PICKLED = (
    "in a temporary folder cannot be pickled: it goes with the object that made it. Save it with "
    "save(folder), or make it with output=folder, and open that folder."
)
"""The end of an error about what another process would not find."""


class TemporaryFolder:
    """A folder that is removed with this object, or at the end of the process, but not by a fork."""

    def __init__(self) -> None:
        stack = contextlib.ExitStack()
        try:
            self._path = stack.enter_context(temporary(Path(tempfile.gettempdir()) / "grls"))
        except OSError as error:
            stack.close()
            raise WriteError(
                f"cannot make a temporary folder: {error}; free disk space, set TMPDIR to a folder that can "
                "be written, or say where by output=."
            ) from error
        weakref.finalize(self, stack.close)

    def __fspath__(self) -> str:
        return str(self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        raise ConfigError(f"what is {NOT_PICKLED}")

    def __deepcopy__(self, memo: dict[int, Any]) -> TemporaryFolder:
        return self  # it goes with the last object that holds it


def folder_for(output: str | Path | None) -> str | Path | TemporaryFolder:
    """The output of a call, or a temporary folder."""
    return TemporaryFolder() if output is None else output


@contextmanager
def saying(name: str, folder: str | os.PathLike[str]) -> Iterator[None]:
    """A context whose errors say ``name`` for a temporary folder, which nobody has named."""
    try:
        yield
    except GrlsError as error:
        if is_temporary(Path(folder)):
            place = os.fspath(folder)
            text = error.text.replace(f"{place}/corpus.jsonl", f"the corpus of {name}").replace(place, name)
            error.args = (text, *error.args[1:])
        raise


def is_temporary(path: str | Path) -> bool:
    return any(_OURS.search(part) for part in Path(path).parts if part.endswith(".tmp"))


def clean(final: Path) -> None:
    """Remove the folders of dead writers of ``final``; content that they moved away is put back first."""
    begin = f".{_stem(final)}."
    try:
        folders = [entry for entry in final.parent.iterdir() if entry.name.startswith(begin)]
    except OSError:
        return
    for work in folders:
        match = _OURS.fullmatch(work.name.removeprefix(begin))
        # A container changes its name, a restart changes the id of the boot: either tells this machine.
        here = match and (match["host"] == _machine()[:4] or match["boot"] == _machine()[4:])
        if not here or not _is_dead(work):
            continue
        if (work / OLD).exists() and not final.exists():
            with contextlib.suppress(OSError):
                (work / OLD).rename(final)
                log.warning("%s is restored: a run died while it replaced it.", final)
        shutil.rmtree(work, ignore_errors=True)
        log.info("removed %s, which a run that died has left.", work)


def put(new: Path, final: Path) -> None:
    """Rename a folder to its final name, in one step with an earlier folder there if the system can.

    Otherwise the old folder is moved away first; after a failure it is moved back, after a kill :func:`clean`
    does that.
    """
    if not final.exists():
        new.rename(final)
    elif not exchange(new, final):
        old = new.with_name(OLD)
        final.rename(old)
        try:
            new.rename(final)
        except OSError:
            old.rename(final)
            raise


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def _stem(final: Path) -> str:
    """The name, or a hash of a name that is too long to be extended."""
    name = os.fsencode(final.name)
    return final.name if len(name) <= _LONGEST else hashlib.sha256(name).hexdigest()[:16]


@cache
def _machine() -> str:
    """Four hexadecimal digits for the name of this machine, and four for its last boot, if known."""
    name = boot = socket.gethostname()
    with contextlib.suppress(OSError):
        boot = Path(_BOOT).read_text(encoding="ascii")
    return "".join(hashlib.sha256(part.encode()).hexdigest()[:4] for part in (name, boot))


def _is_dead(work: Path) -> bool:
    """Whether the writer of a folder has died: nobody holds its lock, and it was held or is long due."""
    try:
        if not HAS_LOCKS:
            return False
        # A younger one without content may be about to lock its file.
        due = (work / NEW).exists() or (work / OLD).exists() or time.time() - work.stat().st_mtime > _YOUNG
        if due and (work / _LOCK).exists():
            with (work / _LOCK).open("rb+") as stream:
                lock(stream.fileno())
        return due
    except OSError:
        return False


class Stamp(NamedTuple):
    """What shows that a file has changed: its size, the time of its last change, and its number."""

    size: int
    changed: int
    number: int


def stamp(file: Path) -> Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


_mapped: ContextVar[dict[Path, Stamp | None] | None] = ContextVar("mapped", default=None)


@contextmanager
def noting_mapped() -> Iterator[dict[Path, Stamp | None]]:
    """A context that notes the files that are mapped into memory, with their stamps.

    Reading a mapped file that was cut since ends the process (SIGBUS).
    """
    noted: dict[Path, Stamp | None] = {}
    before = _mapped.set(noted)
    try:
        yield noted
    finally:
        _mapped.reset(before)


def note_mapped(file: Path) -> None:
    noted = _mapped.get()
    if noted is not None:
        noted[file.absolute()] = stamp(file)
