"""JSONL: a file that grows with a run, and that a killed run resumes; reading; one writer at a time.

The first line of a growing file holds the settings of the run: only a run with the same settings resumes
it. A last line that a kill or a full disk cut off is dropped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO
from weakref import WeakValueDictionary

from grls.errors import DataError, MismatchError, WriteError
from grls.io.files import HAS_LOCKS, lock, refuse_unwritable, text_lines, unlock

log = logging.getLogger(__name__)


_HEAD = "settings"

Record = dict[str, Any]


class GrowingFile:
    """A file of records that grows with a run.

    Args:
        path: The file; if missing, it is made with the first records.
        settings: The settings that the records depend on, as JSON values.
        ends_group: Whether a record ends its group; None: each record is a group. An incomplete last group
            is dropped, and made again.
        keep: Whether ``records`` keeps all of them in memory. Otherwise :meth:`each` reads the file.
        alone: Whether a file that another object of this process has open is refused.
        fields: The fields that every record has, with their types.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        ends_group: Callable[[Record], bool] | None = None,
        keep: bool = True,
        alone: bool = False,
        fields: Mapping[str, Any] = {},
    ):
        self.path = Path(path)
        self._fields = fields
        self.records: list[Record] = []
        self.count = 0
        self._keep = keep
        self._alone = alone
        self._file: LockedFile | None = None
        refuse_unwritable(path)
        self._head: Record = json.loads(json.dumps({_HEAD: settings}))
        if self.path.exists():
            self._file = LockedFile(self.path, alone)
            try:
                self._read(ends_group)
            except BaseException:  # an object that was not made holds no file
                self.close()
                raise

    def add(self, records: Sequence[Record]) -> None:
        """Append records; they are on disk when this returns."""
        # The file is not made earlier: a run without a record may be repeated with other settings.
        if self._file is None:
            self._file = LockedFile(self.path, self._alone)
            if self._file.size:
                raise WriteError(
                    f"{self.path} was begun by another run meanwhile; run the command again to resume it."
                )
        self._file.append(_lines([] if self._file.size else [self._head]) + _lines(records))
        self.count += len(records)
        if self._keep:
            self.records += json.loads(json.dumps(list(records)))

    def each(self) -> Iterator[Record]:
        if self._keep:
            yield from self.records
        elif self.count:
            with self.path.open("rb") as stream:
                next(stream)
                yield from map(json.loads, stream)

    def refuse_other(self, fields: Sequence[str], expected: Iterable[Sequence[Any]]) -> None:
        """Refuse records that are not the first of the expected ones, in order.

        ``fields`` identify a record; ``expected`` has their values for all records of the whole run.
        """
        identities = iter(expected)
        for line, record in enumerate(self.each(), 2):
            values = next(identities, None)
            if values is None or [record.get(name) for name in fields] != list(values):
                identity = ", ".join(f"{name} {record.get(name)!r}" for name in fields)
                raise DataError(
                    f"the record of {identity} is not expected here: another run wrote into this file, or it "
                    "was changed. Remove this line and all that follow it, and run the command again.",
                    self.path,
                    line,
                )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the file, once its records are saved elsewhere."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _read(self, ends_group: Callable[[Record], bool] | None) -> None:
        position = complete = count = 0
        group: list[Record] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                if not raw.endswith(b"\n"):  # a killed run was writing this line
                    break
                position += len(raw)
                record = self._record(raw, number)
                count += number > 1
                if self._keep and number > 1:
                    group.append(record)
                if number == 1 or ends_group is None or ends_group(record):
                    complete, self.count = position, count
                    self.records += group
                    group = []
        if self._file is not None and complete < self._file.size:
            self._file.cut(complete)

    def _record(self, raw: bytes, number: int) -> Record:
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"expected JSON lines ({error}); move the file away.", self.path, number
            ) from None
        if not isinstance(record, dict):
            raise DataError("expected JSON objects; move the file away.", self.path, number)
        if number == 1:
            if not isinstance(record.get(_HEAD), dict):
                raise DataError(
                    "its first line holds no settings, so it is another kind of file; move it away.",
                    self.path,
                )
            if record != self._head:
                old, new = record[_HEAD], self._head[_HEAD]
                names = sorted(n for n in {*old, *new} if old.get(n, _HEAD) != new.get(n, _HEAD))
                raise MismatchError(
                    f"{self.path} was begun with other settings ({', '.join(names)}); give another output, "
                    "or remove it."
                )
            return record
        wrong = [name for name, kind in self._fields.items() if not isinstance(record.get(name, self), kind)]
        if wrong:
            raise DataError(
                f"the field {wrong[0]!r} is missing or malformed, so the file is damaged: remove this line "
                "and all that follow it, and run the command again.",
                self.path,
                number,
            )
        return record


def _lines(records: Sequence[Record]) -> bytes:
    # Models sometimes write half of a surrogate pair: it becomes an escape, which JSON can read.
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return text.encode("utf-8", "backslashreplace")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair of escapes, or a lone one


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line that is not blank."""
    file = Path(path)
    if not file.is_file():
        raise DataError("no such file; expected one JSON object a line.", file)
    for line, text in text_lines(file):
        if not text.strip():
            continue
        try:
            record = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:  # also an integer too long for Python
            raise DataError(f"expected a JSON object ({error}).", file, line) from None
        if not isinstance(record, dict):
            raise DataError(f"expected a JSON object, got {type(record).__name__}.", file, line)
        if _SURROGATE.search(text):
            refuse_half_characters(record, file, line)
        yield line, record


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} occurs twice")
    return record


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number; write null or a text")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def write_line(stream: IO[str], record: dict[str, Any]) -> None:
    stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def string_of(
    record: dict[str, Any],
    key: str,
    file: str | Path,
    line: int | None,
    default: str | None = None,
    empty: bool = False,
) -> str:
    """A field that is a string.

    A missing field, or null, has the ``default``; without a default the field is required, and may be empty
    if ``empty``.
    """
    value = record.get(key, default)
    if isinstance(value, str) and (value or empty or default is not None):
        return value
    if value is None and default is not None:
        return default
    fault = "the key is missing" if key not in record else f"got {value!r}"
    raise DataError(f"expected {key!r} to be a {'' if empty else 'non-empty '}string, {fault}.", file, line)


def object_of(record: dict[str, Any], key: str, file: str | Path, line: int | None) -> dict[str, Any]:
    """A field that is an object; missing or null: an empty object."""
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"expected {key!r} to be a JSON object, got {value!r}.", file, line)
    return value


def refuse_half_characters(record: dict[str, Any], file: str | Path, line: int | None = None) -> None:
    """Refuse an object with half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the escape \\u{ord(error.object[error.start]):04x} is half a character (a lone surrogate), "
            "which no UTF-8 text can hold; remove or repair it.",
            file,
            line,
        ) from None


_held: WeakValueDictionary[tuple[int, int], LockedFile] = WeakValueDictionary()
"""Device and inode of a file -> the object that writes it in this process."""


class LockedFile:
    """A file to which only this process appends.

    Two runs of the same job (it was requeued, and its first copy still runs) would write everything twice.
    So the writer holds a lock on the file, which ends with the process. Without ``alone`` another object of
    this process takes the file over, and the earlier one may not write it any more.
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
            earlier = _held.get(self._number)  # an earlier object of this process
            if alone or earlier is None or earlier._stream is None:
                raise _written(self.path)
            stream, earlier._stream = earlier._stream, None
        self._stream: BinaryIO | None = stream
        _held[self._number] = self

    @property
    def size(self) -> int:
        return os.fstat(self._writable().fileno()).st_size

    def append(self, content: bytes) -> None:
        """Append to the file; the content is on disk when this returns."""
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
        os.ftruncate(self._writable().fileno(), size)

    def close(self) -> None:
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


@contextmanager
def alone_in(folder: str | Path) -> Iterator[None]:
    """Hold a folder, so that no other run writes it. It is made if missing, and removed if it stays empty."""
    path = Path(folder)
    try:
        new = [parent for parent in (path, *path.parents) if not parent.exists()]
        descriptor = _locked_folder(path)
    except OSError as error:
        raise WriteError(f"cannot write {folder}: {error.strerror}; choose another place.") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for parent in new:
                parent.rmdir()
        if descriptor is not None:
            unlock(descriptor)
            os.close(descriptor)


def _locked_folder(path: Path) -> int | None:
    """The descriptor of a folder that is made if missing, and locked; None where there are no locks.

    The run that had it may remove the folder between opening and lock: then it is made again.
    """
    while True:
        path.mkdir(parents=True, exist_ok=True)
        if not HAS_LOCKS:
            return None
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            if not _lock(descriptor, path):
                os.close(descriptor)
                raise _written(path)
            if path.is_dir() and _number(path.stat()) == _number(os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)


def _written(path: Path) -> WriteError:
    return WriteError(
        f"{path} is being written by another run: wait for it or end it, then run the command again; or give "
        "another output."
    )


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lock(descriptor: int, path: Path) -> bool:
    """Whether the lock was acquired; True if the file system has no locks."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked here (%s): make sure that no other run writes it.", path, error)
    return True
