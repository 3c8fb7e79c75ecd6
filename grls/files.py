"""Writing files so that a name either holds the whole content or does not exist.

Everything is written beside its destination under a temporary name and renamed at the end. The
module does not know what it writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from grls.errors import ConfigError, DataError, WriteError


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[str]]:
    """Open a text file for writing that appears under ``path`` only once it is complete.

    Raises:
        WriteError: The disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    final = Path(path)
    temporary: Path | None = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent)
        temporary = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(final)
    except OSError as error:
        raise _write_error(final, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""The system's numbers for what keeps a file from being written."""

_WRAPPED = ("(os error ", "inline_container", "PytorchStreamWriter")
"""What the texts of other libraries' errors hold where they wrap the system's."""


def is_write_failure(error: BaseException) -> bool:
    """Whether a full disk or a missing right is behind an error, also of libraries that wrap it.

    safetensors and tokenizers, written in Rust, and torch's writer have classes of their own for it.
    """
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        return True
    return any(sign in str(error) for sign in _WRAPPED)


def refuse_unwritable(path: str | Path) -> None:
    """Refuse a destination that cannot be written, before hours of work are lost on it.

    Raises:
        WriteError: The folder of ``path``, or the first one above it that is there, cannot be written.
    """
    folder = Path(path).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise _write_error(Path(path), OSError(errno.EACCES, "the folder cannot be written", str(folder)))


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
    final = Path(path).absolute()
    refuse_foreign(final, marker)
    temporary: Path | None = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        _swap(temporary, final)
    except Exception as error:
        if isinstance(error, OSError) or is_write_failure(error):
            raise _write_error(final, error) from error
        raise
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_foreign(path: str | Path, marker: str) -> None:
    """Refuse to replace a folder that holds something and is not of the kind that ``marker`` shows.

    Raises:
        ConfigError: It is not ours to replace, or a file.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{path} is a file, so no folder takes its place; choose another place.")
    if folder.is_dir() and not (folder / marker).exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{path} exists and holds no {marker}, so it is not replaced; choose another folder or empty it."
        )


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, for a library to write, that takes its place at the end.

    Raises:
        WriteError: The disk is full or the folder cannot be written; ``path`` is left as it was.
    """
    final = Path(path)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(final)
    except OSError as error:
        raise _write_error(final, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _swap(new: Path, final: Path) -> None:
    """Put folder ``new`` in the place of ``final``; a failure puts the old one back."""
    if not final.exists():
        new.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".old", dir=final.parent))
    final.rename(old / "old")
    try:
        new.rename(final)
    except OSError:
        (old / "old").rename(final)
        raise
    finally:
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: The file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
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
