"""Writing files so that a name either holds the whole content or does not exist.

Everything is written beside its destination under a temporary name (:mod:`grls.io.temporary`) and renamed
at the end; where the destination is a symbolic link, what it names is written. The module does not know
what it writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from grls.errors import ConfigError, DataError, WriteError
from grls.io.temporary import NEW, clean, put, temporary


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file for writing that appears under ``path`` only once it is complete.

    Raises:
        WriteError: The disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    final = _through(path)
    try:
        with temporary(final) as place:
            with (place / NEW).open("w", encoding="utf-8") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            (place / NEW).replace(final)
    except OSError as error:
        raise _write_error(final, error) from error


WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""The system's numbers for what keeps a file from being written."""

_NAME, _ENDING = 255, 20
"""Longest name of a file in bytes, and how many we may add to one."""

_WRAPPED = ("(os error ", "inline_container", "PytorchStreamWriter")
"""What the texts of other libraries' errors hold where they wrap the system's."""


def is_write_failure(error: BaseException) -> bool:
    """Whether a full disk or a missing right is behind an error, also of libraries that wrap it.

    safetensors and tokenizers, written in Rust, and torch's writer have classes of their own for it.
    """
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        return True
    return any(sign in str(error) for sign in _WRAPPED)


def refuse_unwritable(path: str | Path, folder: bool = False) -> None:
    """Refuse a destination that cannot be written, before hours of work are lost on it.

    Args:
        path: The destination, or the beginning of the names of several files.
        folder: Whether it is to be a folder, whose name may end in a slash.

    Raises:
        ConfigError: It is no name of a file, or too long for one.
        WriteError: The folder of ``path``, or the first one above it that is there, cannot be written.
    """
    name = Path(path).name
    if not folder and (str(path).endswith(("/", os.sep)) or name in ("", "..")):
        raise ConfigError(f"{path} names a folder, and files are written: add a name, as in {path}/mine.")
    if len(os.fsencode(name)) + _ENDING > _NAME:
        raise ConfigError(
            f"the name {name[:40]}… has {len(os.fsencode(name))} bytes, and at most {_NAME - _ENDING} leave "
            "room for what is added to it: choose a shorter one."
        )
    there = Path(path).parent
    try:
        while not there.exists():
            there = there.parent
        writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    except OSError:  # a folder above it that cannot be entered
        writable = False
    if not writable:
        raise _write_error(Path(path), OSError(errno.EACCES, "the folder cannot be written", str(there)))


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of ``path`` when the block ends well.

    Args:
        path: Destination.
        marker: A file that shows that an existing folder is an earlier one of the same kind. Any other
            folder with something in it is not ours to replace.

    Raises:
        ConfigError: ``path`` exists and is neither empty nor of this kind.
        WriteError: The disk is full or the place cannot be written; ``path`` is left as it was.
    """
    final = _through(Path(path).absolute())
    refuse_foreign(final, marker)
    try:
        with temporary(final) as place:
            (place / NEW).mkdir()
            yield place / NEW
            put(place / NEW, final, place)
    except Exception as error:
        if isinstance(error, OSError) or is_write_failure(error):
            raise _write_error(final, error) from error
        raise


def refuse_foreign(path: str | Path, marker: str) -> None:
    """Refuse to replace a folder that holds something and is not of the kind that ``marker`` shows.

    Raises:
        ConfigError: It is not ours to replace, a file, or the folder that this process runs in.
        WriteError: It can be no name.
    """
    folder = _through(Path(path).absolute())
    clean(folder)
    try:
        folder.exists()
    except OSError as error:
        raise _write_error(folder, error) from None
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{path} is a file, so no folder takes its place; choose another place.")
    if _is_around_us(folder):
        raise ConfigError(
            f"{path} is the folder that this command runs in, or holds it, so it cannot be replaced; choose "
            "another place, or run the command elsewhere."
        )
    if folder.is_dir() and not (folder / marker).exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{path} exists and holds no {marker}, so it is not replaced; choose another folder or empty it."
        )


def _is_around_us(folder: Path) -> bool:
    """Whether a folder is the one that this process stands in, or above it."""
    try:
        here, there = Path.cwd().resolve(), folder.resolve()
    except OSError:
        return False
    return there == here or there in here.parents


def _through(path: str | Path) -> Path:
    """What a symbolic link names, so that what is written lies there; else the path itself."""
    found = Path(path)
    return Path(os.path.realpath(found)) if os.path.islink(found) else found  # noqa: PTH114  no error where the name is too long


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, for a library to write, that takes its place at the end.

    Raises:
        WriteError: The disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    final = _through(path)
    try:
        with temporary(final) as place:
            yield place / final.name
            (place / final.name).replace(final)
    except OSError as error:
        raise _write_error(final, error) from error


@contextmanager
def scratch_folder(path: str | Path) -> Iterator[Path]:
    """Yield a folder beside ``path`` for what is needed until the block ends.

    Raises:
        OSError: It cannot be made.
    """
    with temporary(_through(Path(path).absolute())) as place:
        yield place


def _write_error(path: Path, error: Exception) -> WriteError:
    reason = getattr(error, "strerror", None) or error
    return WriteError(
        f"cannot write {path}: {reason}; nothing was left under that name. "
        "Free some space or choose another place, then run the command again."
    )


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with atomic_file(path) as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


BOM = b"\xef\xbb\xbf"
"""What some editors put before UTF-8 text; it is no part of it."""


def read_text(path: str | Path) -> str:
    """The text of a file, UTF-8 with or without a byte order mark, line ends as line feeds.

    Raises:
        DataError: The file is missing or is no such text.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError("no such file; expected a text.", path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8 text ({error}).", path) from None


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text without its end) of a file; see :func:`read_text`.

    A line ends with a line feed, or with a carriage return and one: whatever else Unicode calls a line end
    may stand in an id.

    Raises:
        DataError: The file is no UTF-8 text, with the line.
    """
    with Path(path).open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.removeprefix(BOM) if number == 1 else raw
            try:
                yield number, line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(f"expected UTF-8 text ({error}).", path, number) from None


def named_lines(path: str | Path, expected: str) -> list[tuple[int, str]]:
    """The lines of a file that names passages, with their numbers; the one reading of all such files.

    A name is its line as it stands, white space at its edges included; only blank lines are left out. Lines
    end as those of :func:`text_lines`. A carriage return elsewhere is refused: it may be a line end of old.

    Args:
        path: The file.
        expected: What its lines are, for the error text.

    Raises:
        DataError: The file is missing, names nothing or is no UTF-8 text, or a line holds a carriage return.
    """
    if not Path(path).is_file():
        raise DataError(f"no such file; expected {expected}.", path)
    found = [(number, line) for number, line in text_lines(path) if line.strip()]
    if not found:
        raise DataError(f"the file is empty; expected {expected}.", path)
    for number, line in found:
        if "\r" in line:
            raise DataError(
                f"{line[:60]!r} holds a carriage return; expected {expected}, each ended by a line feed.",
                path,
                number,
            )
    return found


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: The file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError("no such file.", path) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected a JSON document ({error}).", path) from None


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_count(found: Any, name: str, what: str, example: int, file: Path) -> int | None:
    """A count above 0 that a JSON file holds as ``{name: count}``; None where it holds nothing.

    Args:
        found: What stands there.
        name: Under which name.
        what: What it counts, for the error text.
        example: A usual one, likewise.
        file: Likewise.

    Raises:
        DataError: Something else stands there.
    """
    if found is None:
        return None
    count = found.get(name) if isinstance(found, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise DataError(f'expected {what} as {{"{name}": {example}}}, got {found!r}.', file)
    return count
