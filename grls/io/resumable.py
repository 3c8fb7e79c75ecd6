"""A JSONL file that grows as work is done, so that a killed run resumes where it stopped.

Its first line holds the settings of the run. Only a run with the same settings resumes it, and one process at
a time writes it (:mod:`grls.io.locks`). A last line that a kill or a full disk cut off is dropped. The module
does not know what the records mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grls.errors import DataError, MismatchError, WriteError
from grls.io.files import refuse_unwritable
from grls.io.locks import LockedFile

_HEAD = "settings"

Record = dict[str, Any]


class GrowingFile:
    """Records that are written as they are made.

    Args:
        path: The file; if missing, it is made with the first records.
        settings: What the records depend on, as JSON values.
        whole: Whether a record is the last one of a group that is made together. An incomplete group at the
            end of the file is dropped and made again; None: each record is a group.
        keep: Whether to keep all records in memory. Otherwise :meth:`each` reads the file, and the use of
            memory does not grow.
        alone: Whether a file that another object of this process has open is refused, as one of another
            process is.
        fields: The fields that every record has, with their types.

    Attributes:
        records: All records so far, those that the file held before first; empty without ``keep``.
        count: How many records there are.

    Raises:
        MismatchError: The file was begun with other settings.
        DataError: It is another kind of file.
        WriteError: Another process writes the file, or it cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        whole: Callable[[Record], bool] | None = None,
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
                self._read(whole)
            except BaseException:  # an object that was not made holds no file
                self.close()
                raise

    def add(self, records: Sequence[Record]) -> None:
        """Append records; they are on disk when this returns.

        Raises:
            WriteError: The disk is full, or another process writes the file.
        """
        # The file is not made earlier: a run without a record may be repeated with other settings.
        file = self._file or self._begun()
        file.append(_lines([self._head] if not file.size else []) + _lines(records))
        self.count += len(records)
        if self._keep:
            self.records += json.loads(json.dumps(list(records)))

    def each(self) -> Iterator[Record]:
        """All records so far, in their order."""
        if self._keep:
            yield from self.records
        elif self.count:
            with self.path.open("rb") as stream:
                next(stream)
                yield from map(json.loads, stream)

    def refuse_other(self, fields: Sequence[str], expected: Iterable[Sequence[Any]]) -> None:
        """Refuse records that are not the first ones of the expected records, each once and in order.

        Args:
            fields: The fields that identify a record.
            expected: The values of these fields, for all records of the whole run.

        Raises:
            DataError: A record is repeated, missing, or of another run.
        """
        wanted = iter(expected)
        for line, record in enumerate(self.each(), 2):
            due = next(wanted, None)
            if due is None or [record.get(name) for name in fields] != list(due):
                identity = ", ".join(f"{name} {record.get(name)!r}" for name in fields)
                raise DataError(
                    f"the record of {identity} is not expected here: another run wrote into this file, or it "
                    "was changed. Remove this line and all that follow it, and run the command again.",
                    self.path,
                    line,
                )

    def close(self) -> None:
        """Let other processes write the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the file, once its records are saved elsewhere."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _begun(self) -> LockedFile:
        self._file = file = LockedFile(self.path, self._alone)
        if file.size:
            raise WriteError(
                f"{self.path} was begun by another run meanwhile; run the command again to resume it."
            )
        return file

    def _read(self, whole: Callable[[Record], bool] | None) -> None:
        """Read the records, and cut off an incomplete end."""
        place = complete = count = 0
        waiting: list[Record] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                if not raw.endswith(b"\n"):  # a killed run was writing this line
                    break
                place += len(raw)
                line = self._line(raw, number)
                count += number > 1
                if self._keep and number > 1:
                    waiting.append(line)
                if number == 1 or whole is None or whole(line):
                    complete, self.count = place, count
                    self.records += waiting
                    waiting = []
        if self._file is not None and complete < self._file.size:
            self._file.cut(complete)

    def _line(self, raw: bytes, number: int) -> Record:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"expected JSON lines ({error}); move the file away.", self.path, number
            ) from None
        if not isinstance(line, dict):
            raise DataError("expected JSON objects; move the file away.", self.path, number)
        if number == 1:
            self._refuse_settings(line)
            return line
        wrong = [name for name, kind in self._fields.items() if not isinstance(line.get(name, self), kind)]
        if wrong:
            raise DataError(
                f"the field {wrong[0]!r} is missing or malformed, so the file is damaged: remove this line "
                "and all that follow it, and run the command again.",
                self.path,
                number,
            )
        return line

    def _refuse_settings(self, line: Record) -> None:
        if not isinstance(line.get(_HEAD), dict):
            raise DataError(
                "its first line holds no settings, so it is another kind of file; move it away.", self.path
            )
        if line != self._head:
            old, new = line[_HEAD], self._head[_HEAD]
            other = sorted(name for name in {*old, *new} if old.get(name, _HEAD) != new.get(name, _HEAD))
            raise MismatchError(
                f"{self.path} was begun with other settings ({', '.join(other)}); give another output, or "
                "remove it."
            )


def _lines(records: Sequence[Record]) -> bytes:
    # Models sometimes write half of a surrogate pair: it becomes an escape, which JSON can read.
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return text.encode("utf-8", "backslashreplace")
