"""Items that are done in order, into a file with which a killed run goes on.

The first line of the file holds the settings of the run: only a run with the same settings adds to it. A last
line that a kill or a full disk cut off is dropped. One run at a time writes it. A :class:`Journal` holds what
was found of settings or steps, by their names.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, Self, TypeVar

from grls.errors import DataError, MismatchError, WriteError
from grls.io.files import HAS_LOCKS, lock, refuse_unwritable, unlock
from grls.io.progress import Progress

log = logging.getLogger(__name__)

_HEAD = "settings"
_SPENT = "spent"

Record = dict[str, Any]
Item = TypeVar("Item")
Do = Callable[[Sequence[Item], Callable[[int], object]], Iterable[Record]]
"""From items, and a function that is called with the number of items done, to a record of each."""


@contextmanager
def all_done(
    items: Sequence[Item],
    do: Do[Item],
    file: str | Path,
    settings: dict[str, Any],
    name: Callable[[Item], Record],
    together: int,
    label: str,
    unit: str,
    known: Sequence[Item] | None = None,
    spent: Callable[[], Mapping[str, int]] | None = None,
    alone: bool = False,
) -> Iterator[GrowingFile]:
    """Do the items that a file lacks, so many ``together``; the block has the file with the records of all.

    A record is the ``name`` of its item and what ``do`` returns for it. A group that a kill has split is done
    again, so that groups are those of a run that nothing ends. With ``spent``, running totals of this
    process, the last record of a group has what the group has spent, and its seconds. A run over the first
    items of ``known`` leaves a file with which a run over all goes on. Items that stand ``alone`` do not
    depend on their group: each is saved as it comes, and ``do`` may end before its group does.
    """
    with GrowingFile(file, settings, grouped=spent is not None) as lines:
        _refuse_other(lines, map(name, items if known is None else known))
        if spent is None and not alone and lines.count < len(items):
            lines.cut(lines.count // together * together)
        with Progress(len(items), label, unit, lines.count) as bar:
            while lines.count < len(items):
                group = items[lines.count : lines.count + together]
                before, begun = dict(spent()) if spent else {}, perf_counter()
                pairs = zip(group, do(group, bar.update), strict=not alone)
                named = (name(item) | record for item, record in pairs)
                for records in ([record] for record in named) if alone else [[*named]]:
                    if spent is not None:
                        cost: dict[str, float] = {key: total - before[key] for key, total in spent().items()}
                        records[-1][_SPENT] = cost | {"seconds": perf_counter() - begun}
                    lines.add(records)
                    bar.update(lines.count - bar.done)
        yield lines


def _refuse_other(lines: GrowingFile, names: Iterable[Record]) -> None:
    """Refuse records that are not those of the first items, in order."""
    expected = iter(names)
    for number, record in enumerate(lines, 2):
        name = next(expected, {})
        if not name or not name.items() <= record.items():
            shown = ", ".join(f"{key} {record.get(key)!r}" for key in name or list(record)[:1])
            raise DataError(
                f"the record of {shown} is not expected here: another run wrote into this file, or it was "
                "changed. Remove this line and all that follow it, and run the command again.",
                lines.path,
                number,
            )


class GrowingFile:
    """A file of records that grows with a run, and that this object holds until it is closed.

    Args:
        path: The file; if missing, it is made with the first records.
        settings: The settings that the records depend on, as JSON values.
        fields: The fields that every record has, with their types.
        grouped: Whether the last record of a group has ``spent``; an incomplete last group is dropped.

    Attributes:
        count: Number of records.
        found: Number of records that the file held when it was opened.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        fields: Mapping[str, Any] = {},
        grouped: bool = False,
    ):
        self.path = Path(path)
        self.count = 0
        self.found = 0
        self._fields = fields
        self._stream: BinaryIO | None = None
        refuse_unwritable(path)
        self._head: Record = json.loads(json.dumps({_HEAD: settings}))
        if self.path.exists():
            stream = self._locked()
            try:
                self._read(stream, grouped)
                self.found = self.count
            except BaseException:  # an object that was not made holds no file
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        if self.count:
            with self.path.open("rb") as stream:
                next(stream)
                yield from map(json.loads, stream)

    def spent(self) -> Counter[str]:
        """What all groups have spent."""
        total: Counter[str] = Counter()
        for record in self:
            total.update(record.get(_SPENT, {}))
        return total

    def add(self, records: Sequence[Record]) -> None:
        """Append records; they are on disk when this returns."""
        # The file is not made earlier: a run without a record may be repeated with other settings.
        begun, stream = self._stream is not None, self._stream or self._locked()
        size = os.fstat(stream.fileno()).st_size
        if not self.path.exists() or not os.path.samestat(os.fstat(stream.fileno()), self.path.stat()):
            raise WriteError(
                f"{self.path} was removed or replaced while it was written; run the command again."
            )
        if size and not begun:
            self.close()
            raise WriteError(
                f"{self.path} was begun by another run meanwhile; run the command again to resume it."
            )
        rows = [*([] if size else [self._head]), *records]
        # Models sometimes write half of a surrogate pair: it becomes an escape, which JSON can read.
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        try:
            stream.write(text.encode("utf-8", "backslashreplace"))
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise WriteError(
                f"cannot write {self.path}: {error.strerror}; free some space and run the command again: it "
                "resumes where it stopped."
            ) from error
        self.count += len(records)

    def cut(self, count: int) -> None:
        """Keep the first ``count`` records."""
        if count < self.count:
            with self.path.open("rb") as stream:
                kept = sum(len(next(stream)) for _ in range(count + 1))  # and the settings
            os.truncate(self.path, kept)
            self.count = self.found = count

    def close(self) -> None:
        if self._stream is not None:
            unlock(self._stream.fileno())
            with contextlib.suppress(OSError):  # of a full disk, which was told
                self._stream.close()
            self._stream = None

    def _locked(self) -> BinaryIO:
        """The file, held: two runs of one job, which was requeued, would write everything twice."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            stream = self.path.open("ab")
        except OSError as error:
            raise WriteError(f"cannot write {self.path}: {error.strerror}; choose another place.") from error
        if not _lock(stream.fileno(), self.path):
            stream.close()
            raise _written(self.path)
        self._stream = stream
        return stream

    def remove(self) -> None:
        """Delete the file, once its records are saved elsewhere."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _read(self, held: BinaryIO, grouped: bool) -> None:
        position = complete = 0
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                if not raw.endswith(b"\n"):  # a killed run was writing this line
                    break
                position += len(raw)
                record = self._record(raw, number)
                if number == 1 or not grouped or _SPENT in record:
                    complete, self.count = position, number - 1
        if complete < os.fstat(held.fileno()).st_size:
            os.ftruncate(held.fileno(), complete)

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


_JSON = (dict, list, str, int, float, type(None))


class Journal(GrowingFile):
    """What was found of settings or steps, in a file as it comes, so that a killed run goes on from there.

    ``settings`` are those of the whole file; all are JSON values. ``known`` has the last record of each
    step, by its name, or of each setting, by its JSON; the latest is at the end.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any], kind: Any = _JSON):
        super().__init__(path, settings, {"of": (dict, str), "found": kind})
        self.known: dict[str, Any] = {}
        for record in self:
            self._take(record["of"], record["found"])

    def _take(self, of: dict[str, Any] | str, found: Any) -> None:
        key = _key(of)
        self.known.pop(key, None)  # the order is that of time
        self.known[key] = found

    def put(self, of: dict[str, Any] | str, found: Any) -> None:
        """It is on disk when this returns."""
        self.add([{"of": of, "found": found}])
        self._take(of, json.loads(json.dumps(found)))

    def measured(self, setting: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """The measurement of a setting, from the file or new."""
        if _key(setting) not in self.known:
            self.put(setting, measure())
        return self.known[_key(setting)]


def _key(of: dict[str, Any] | str) -> str:
    return of if isinstance(of, str) else json.dumps(of, sort_keys=True)


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
            if path.is_dir() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)


def _written(path: Path) -> WriteError:
    return WriteError(
        f"{path} is being written by another run: wait for it or end it, then run the command again; or give "
        "another output."
    )


def _lock(descriptor: int, path: Path) -> bool:
    """Whether the lock was acquired; True if the file system has no locks."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("%s cannot be locked here (%s): make sure that no other run writes it.", path, error)
    return True
