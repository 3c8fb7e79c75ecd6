"""Work that is cut into shards, and the folder of the shards that are done.

A shard is a range of items. The folder holds ``plan.json`` (settings that the results depend on, number of
items, size of a shard) and a folder for each finished shard with its files and ``shard.json``, the receipt:
settings, range and result, with the seal of the folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from grls.errors import DataError, MismatchError
from grls.io.files import atomic_folder, read_json, write_json
from grls.io.progress import counted
from grls.io.seal import changed, seal
from grls.io.work import alone_in

log = logging.getLogger(__name__)


PLAN = "plan.json"
RECEIPT = "shard.json"
FORMAT = 2


class Shard(NamedTuple):
    """A range of items, without its end."""

    number: int
    first: int
    end: int


Work = Callable[[Shard, Path], dict[str, Any]]
"""The work on a shard: it writes files to an empty folder and returns a result as JSON values."""

Maker = Callable[[], Work]
"""Opens models and files of the work. It is sent to workers, so it holds only names, numbers and options."""


class Done(NamedTuple):
    shard: Shard
    folder: Path
    result: dict[str, Any]


class ShardPlan:
    """Items cut into shards of ``size`` items.

    Args:
        folder: The folder of the finished shards; it is made by :meth:`begin`.
        settings: The settings that the results depend on, as JSON values.
        items: Number of items.
        size: Items of a shard.
        replaces: Shards that were begun with other settings are dropped; false refuses them.
    """

    def __init__(
        self, folder: str | Path, settings: dict[str, Any], items: int, size: int, replaces: bool = False
    ):
        self.folder = Path(folder).absolute()
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.items = items
        self.size = size
        self.replaces = replaces

    @property
    def shards(self) -> list[Shard]:
        firsts = range(0, self.items, self.size)
        return [Shard(n, first, min(first + self.size, self.items)) for n, first in enumerate(firsts)]

    def begin(self) -> list[Shard]:
        """Make the folder, or open that of a killed run; returns the missing shards."""
        file = self.folder / PLAN
        if self.replaces and file.is_file() and _read_plan(file) != self._record():
            log.warning("%s: the shards there are of other work, and are dropped.", self.folder)
            for folder in self.folder.glob("shard-*"):
                shutil.rmtree(folder)
            file.unlink()  # last, so that no earlier shard belongs to a new plan
        if file.is_file():
            begun, record = read_json(file), self._record()
            if not isinstance(begun, dict):
                raise DataError(f"expected the plan of a sharded run; remove {self.folder}.", file)
            if begun != record:
                old, new = ({**value, **(value.get("settings") or {})} for value in (begun, record))
                names = sorted(name for name in {*old, *new} - {"settings"} if old.get(name) != new.get(name))
                raise MismatchError(
                    f"{self.folder}: the shards there were begun with other settings "
                    f"({', '.join(names) or 'plan'}); give the options they were begun with, or remove that "
                    "folder."
                )
        else:
            write_json(file, self._record())
        return [shard for shard in self.shards if not (self.folder_of(shard) / RECEIPT).is_file()]

    def folder_of(self, shard: Shard) -> Path:
        return self.folder / f"shard-{shard.number:05}"

    def do(self, shard: Shard, work: Work) -> None:
        """Do one shard, in any process; its folder appears once it is complete."""
        with atomic_folder(self.folder_of(shard), RECEIPT) as new:
            receipt = {"format": FORMAT, "settings": self._digest, "range": [shard.first, shard.end]}
            seal(new / RECEIPT, {**receipt, "result": work(shard, new)})

    def gather(self) -> list[Done]:
        missing = [shard for shard in self.shards if not (self.folder_of(shard) / RECEIPT).is_file()]
        if missing:
            shard = missing[0]
            raise DataError(
                f"missing: {len(missing):,} of {counted(len(self.shards), 'shard')}, the first is number "
                f"{shard.number} (items {shard.first:,} to {shard.end - 1:,}): run the command again, which "
                "does only these.",
                self.folder,
            )
        done = []
        for shard in self.shards:
            folder = self.folder_of(shard)
            receipt = read_json(folder / RECEIPT)
            fields = {"settings": str, "range": list, "result": dict}
            known = isinstance(receipt, dict) and receipt.get("format") == FORMAT
            if not known or not all(isinstance(receipt.get(name), kind) for name, kind in fields.items()):
                raise DataError(f"this is no receipt of a shard; {_again(folder)}.", folder / RECEIPT)
            if receipt["settings"] != self._digest or receipt["range"] != [shard.first, shard.end]:
                raise MismatchError(
                    f"{folder}: this shard is of other work (another corpus, model or option), or of another "
                    f"range; {_again(folder)}."
                )
            if fault := changed(folder / RECEIPT, receipt):
                raise DataError(f"{fault}; {_again(folder)}.")
            done.append(Done(shard, folder, receipt["result"]))
        return done

    @property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()

    def _record(self) -> dict[str, Any]:
        return {"format": FORMAT, "items": self.items, "shard": self.size, "settings": self.settings}


def _read_plan(file: Path) -> Any:
    """The plan of a killed run; None if it is missing, or :meth:`ShardPlan.begin` refuses it."""
    try:
        return read_json(file) if file.is_file() else None
    except DataError:
        return None


def _again(folder: Path) -> str:
    return f"remove {folder} and run the command again"


def shards_folder(output: str | Path) -> Path:
    path = Path(output).absolute()
    return path.with_name(f".{path.name}.shards")


@contextmanager
def held_shards(output: str | Path) -> Iterator[Path]:
    """The folder of the shards of an output, locked, and removed when the block ends without an error, or is
    interrupted before a shard is done.
    """
    folder = shards_folder(output)
    with alone_in(folder):
        try:
            yield folder
        except (KeyboardInterrupt, SystemExit):  # signals end commands so
            if not any(folder.glob("shard-*")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def seen_elsewhere(path: str) -> str:
    """The absolute path, since a worker runs in another folder; a hub name stays."""
    return str(Path(path).absolute()) if Path(path).exists() else path


def refuse_other_reading(
    read: Mapping[str, Any], expected: Mapping[str, Any], paths: Mapping[str, tuple[str, str]]
) -> None:
    """Refuse work on a worker that reads other files than the command.

    ``paths``: name of a fingerprint -> the path, and the kind of its content.
    """
    for name, value in expected.items():
        if read.get(name) != value:
            path, kind = paths.get(name, (name, name))
            raise MismatchError(
                f"{path}: a worker reads another {kind} there; all machines must see the same files."
            )
