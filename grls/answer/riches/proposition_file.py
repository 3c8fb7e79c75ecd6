"""The file of propositions: written passage by passage, and taken up again where a run was ended.

One JSON object a line: ``passage`` (its id), ``text`` (null in the one line of a passage that has none),
``part`` of ``parts`` (from 1; 0 of 0 where there is none), ``by`` (``model``, or ``sentences`` where it wrote
none) and, in a passage's first line, ``dropped`` (why lines of the model were left out, and how many). So the
file is the map from proposition to passage, and tells which passages are complete: what a killed run left of
the last one is cut off. Beside it stands ``FILE.manifest.json`` with what the propositions were made from,
and how; a run with something else is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grls.answer.riches.propositions import Propositions
from grls.errors import DataError, MismatchError
from grls.io.files import read_json, refuse_unwritable, write_json
from grls.io.locks import LockedFile

FORMAT = 1
_REMEDY = "give the options it was begun with, or another --output"


@dataclass
class Tally:
    """What a file holds.

    Attributes:
        passages: Ids of the passages that are complete.
        propositions: Lines with a text.
        sentences: How many passages have their sentences for propositions.
        none: How many have none.
        dropped: Why lines of the model were left out, and how many.
    """

    passages: set[str] = field(default_factory=set)
    propositions: int = 0
    sentences: int = 0
    none: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, unit: list[dict[str, Any]]) -> None:
        """Count the lines of one passage."""
        self.passages.add(unit[0]["passage"])
        self.propositions += unit[0]["parts"]
        self.none += unit[0]["parts"] == 0
        self.sentences += unit[0]["by"] == "sentences" and unit[0]["parts"] > 0
        self.dropped.update(unit[0]["dropped"])


class PropositionFile:
    """A file of propositions that grows.

    Args:
        path: The file; its manifest is beside it.
        origin: What the propositions are made from, and how, as JSON has it.

    Raises:
        DataError: The file is there without a manifest, or a line in its midst is damaged.
        MismatchError: It was begun with another origin.
        WriteError: It cannot be written, or another process writes it.
    """

    def __init__(self, path: str | Path, origin: dict[str, Any]):
        self.path = Path(path)
        self.tally = Tally()
        manifest = self.path.with_name(f"{self.path.name}.manifest.json")
        refuse_unwritable(self.path)
        if manifest.is_file():
            self._refuse_other(read_json(manifest), origin, manifest)
        elif self.path.exists() and self.path.stat().st_size:
            raise DataError("the file has no manifest, so nothing is added to it; move it.", self.path)
        self._file = LockedFile(self.path)
        if not manifest.is_file():
            write_json(manifest, {"format": FORMAT, **origin})
        self._take_up()

    def append(self, found: Iterable[Propositions]) -> None:
        """Add the propositions of passages; those that are there are left out.

        Raises:
            WriteError: The disk is full; what is complete stays.
        """
        units = [_lines(one) for one in found if one.passage not in self.tally.passages]
        written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for unit in units for line in unit)
        self._file.append(written.encode("utf-8", "backslashreplace"))
        for unit in units:
            self.tally.add(unit)

    def _refuse_other(self, made: Any, origin: dict[str, Any], manifest: Path) -> None:
        if not isinstance(made, dict) or made.get("format") != FORMAT:
            raise DataError(f"expected a manifest of format {FORMAT}; give another --output.", manifest)
        for name, given in json.loads(json.dumps(origin)).items():
            if made.get(name) != given:
                told = f" ({made.get(name)!r}, now {given!r})" if len(f"{given}{made.get(name)}") < 80 else ""
                raise MismatchError(f"{self.path}: begun with another {name}{told}; {_REMEDY}.")

    def _take_up(self) -> None:
        """Count what is complete, and cut off what is not."""
        complete = place = 0
        unit: list[dict[str, Any]] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                place += len(raw)
                if not raw.endswith(b"\n"):  # the line that a killed run was writing
                    break
                unit.append(self._line(raw, number, unit))
                if unit[-1]["part"] == unit[-1]["parts"]:
                    self.tally.add(unit)
                    unit, complete = [], place
        if complete < self._file.size:
            self._file.cut(complete)

    def _line(self, raw: bytes, number: int, unit: list[dict[str, Any]]) -> dict[str, Any]:
        """A line behind those of the same passage.

        Raises:
            DataError: It is none of ours, or not the next one.
        """
        try:
            line: dict[str, Any] = json.loads(raw)
            part, parts = line["part"], line["parts"]
            fits = part == (len(unit) + 1 if parts else 0) and ("dropped" in line) == (not unit)
            fits &= line["passage"] not in self.tally.passages
            if unit:
                fits &= (line["passage"], parts) == (unit[0]["passage"], unit[0]["parts"])
        except (ValueError, TypeError, KeyError):
            fits = False
        if not fits:
            raise DataError(
                "expected the next proposition as `grls prepare propositions` writes it; take the rest of "
                "the file away, and run the command again.",
                self.path,
                number,
            )
        return line


def _lines(one: Propositions) -> list[dict[str, Any]]:
    """The lines of a passage."""
    parts = len(one.texts)
    lines: list[dict[str, Any]] = [
        {"passage": one.passage, "text": text, "part": part, "parts": parts, "by": one.by}
        for part, text in enumerate(one.texts, 1)
    ] or [{"passage": one.passage, "text": None, "part": 0, "parts": 0, "by": one.by}]
    lines[0]["dropped"] = one.dropped
    return lines
