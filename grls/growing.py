"""A JSONL file that grows as work is done, so that a killed run goes on where it stopped.

Its first line holds the settings it was begun with; it goes on with the same ones only. A last line that was
cut off by a kill or a full disk is dropped. It does not know what the records mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.errors import DataError, MismatchError
from grls.files import refuse_unwritable

_HEAD = "settings"


class GrowingFile:
    """Records that are kept as they come.

    Args:
        path: The file; a new one is begun with the first records, where there is none.
        settings: What the records depend on, as JSON values.

    Attributes:
        records: All records so far, those found in the file first.

    Raises:
        MismatchError: The file was begun with other settings.
        DataError: It is not such a file.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]):
        self.path = Path(path)
        self.records: list[dict[str, Any]] = []
        refuse_unwritable(path)
        self._head: dict[str, Any] = json.loads(json.dumps({_HEAD: settings}))
        if self.path.exists():
            self._read(self._head)

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Append some records; they are on disk when this returns."""
        if not self.path.exists() or not self.path.stat().st_size:
            # Not earlier: a run that ends before there is anything to keep may be called with other settings.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append([self._head, *records])
        else:
            self._append(records)
        self.records += json.loads(json.dumps(list(records)))

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        # Half of a surrogate pair, as models write them, becomes an escape that JSON reads back.
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
            stream.flush()
            os.fsync(stream.fileno())

    def _read(self, head: dict[str, Any]) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise DataError(f"expected JSON lines ({error}); move the file away.", self.path) from None
        if lines and (not isinstance(lines[0], dict) or _HEAD not in lines[0]):
            raise DataError(
                "its first line names no settings, so it is another file; move it away.", self.path
            )
        if lines and lines[0] != head:
            old, new = lines[0][_HEAD], head[_HEAD]
            other = sorted(name for name in {*old, *new} if old.get(name, _HEAD) != new.get(name, _HEAD))
            raise MismatchError(
                f"{self.path} was begun with other settings ({', '.join(other)}); give another output, or "
                "remove it."
            )
        if len(whole) < len(raw):
            os.truncate(self.path, len(whole))
        self.records = lines[1:]
