"""A JSONL file that grows as work is done, so that a killed run goes on where it stopped.

Its first line holds the settings it was begun with; it goes on with the same ones only, and one process at a
time writes it (:mod:`grls.io.locks`). A last line that was cut off by a kill or a full disk is dropped. It
does not know what the records mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from grls.errors import DataError, MismatchError, WriteError
from grls.io.files import refuse_unwritable
from grls.io.locks import LockedFile

_HEAD = "settings"

Record = dict[str, Any]


class GrowingFile:
    """Records that are kept as they come.

    Args:
        path: The file; a new one is begun with the first records, where there is none.
        settings: What the records depend on, as JSON values.
        whole: Whether a record is the last of those that were made together. Where a kill has parted such
            records, all of them go: they are made anew together. None: each record stands alone.
        keep: Whether the records stay in memory, too; else :meth:`each` reads them, and memory stays level.

    Attributes:
        records: All records so far, those found in the file first; none without ``keep``.
        count: How many there are.

    Raises:
        MismatchError: The file was begun with other settings.
        DataError: It is not such a file.
        WriteError: Another process writes it, or it cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        whole: Callable[[Record], bool] | None = None,
        keep: bool = True,
    ):
        self.path = Path(path)
        self.records: list[Record] = []
        self.count = 0
        self._keep = keep
        self._file: LockedFile | None = None
        refuse_unwritable(path)
        self._head: Record = json.loads(json.dumps({_HEAD: settings}))
        if self.path.exists():
            self._file = LockedFile(self.path)
            self._read(whole)

    def add(self, records: Sequence[Record]) -> None:
        """Append some records; they are on disk when this returns.

        Raises:
            WriteError: The disk is full, or another process writes the file.
        """
        # Not earlier: a run that ends before there is anything to keep may be called with other settings.
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
        """Refuse records that are not the first of what is made here, each once and in its order.

        Args:
            fields: What tells records apart.
            expected: The values of these fields of all records that will be made.

        Raises:
            DataError: A record is repeated, left out, or foreign.
        """
        wanted = iter(expected)
        for line, record in enumerate(self.each(), 2):
            due = next(wanted, None)
            if due is None or [record.get(name) for name in fields] != list(due):
                told = ", ".join(f"{name} {record.get(name)!r}" for name in fields)
                raise DataError(
                    f"the record of {told} is not due here: another run wrote into this file, or it was "
                    "changed. Take this line and what follows it away, and run the command again.",
                    self.path,
                    line,
                )

    def close(self) -> None:
        """Let other processes write the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Take the file away: what was kept in it stands elsewhere now."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _begun(self) -> LockedFile:
        self._file = file = LockedFile(self.path)
        if file.size:
            raise WriteError(
                f"{self.path} was begun by another run meanwhile; run the command again to go on from it."
            )
        return file

    def _read(self, whole: Callable[[Record], bool] | None) -> None:
        """Take up the records, and cut off what is not complete."""
        place = complete = count = 0
        waiting: list[Record] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                if not raw.endswith(b"\n"):  # the line that a killed run was writing
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

    def _refuse_settings(self, line: Record) -> None:
        if _HEAD not in line:
            raise DataError(
                "its first line names no settings, so it is another file; move it away.", self.path
            )
        if line != self._head:
            old, new = line[_HEAD], self._head[_HEAD]
            other = sorted(name for name in {*old, *new} if old.get(name, _HEAD) != new.get(name, _HEAD))
            raise MismatchError(
                f"{self.path} was begun with other settings ({', '.join(other)}); give another output, or "
                "remove it."
            )


def _lines(records: Sequence[Record]) -> bytes:
    # Half of a surrogate pair, as models write them, becomes an escape that JSON reads back.
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return text.encode("utf-8", "backslashreplace")
