"""Damages every file of every kind of folder, opens the folder, and looks at what comes.

A damaged folder must be refused by an error of grls that names a file or folder of it, or answer exactly as
before (the damage is in bytes that no answer depends on, such as white space or a field that only training
reads). Anything else is a fault: another answer (undetected), an error of another library (unclear), or much
more memory than the files have.
"""

from __future__ import annotations

import json
import random
import re
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from small_data import queries

from grls.errors import GrlsError
from grls.index.storage import INDEX_MANIFEST as INDEX
from grls.index.storage import load_index
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import MANIFEST

REFUSED, HARMLESS, UNDETECTED, UNCLEAR, GREEDY = "refused", "harmless", "undetected", "unclear", "greedy"
MOST_MIB = 512
"""Memory that opening a tiny damaged folder may add to the process."""


class Damaged(NamedTuple):
    """What came of one damage."""

    folder: str
    file: str
    how: str
    outcome: str
    told: str = ""


def flipped(content: bytes, place: int, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damages(content: bytes, other: bytes, rng: random.Random, flips: int) -> Iterator[tuple[str, bytes]]:
    """(how, damaged content): each region flipped, cut at several places, emptied, zeroed, swapped."""
    if content:
        for region in range(flips):
            low, high = region * len(content) // flips, (region + 1) * len(content) // flips
            yield "flipped", flipped(content, rng.randrange(low, max(high, low + 1)), rng)
        for keep in sorted({0, len(content) // 2, len(content) - 1}):
            yield ("emptied" if keep == 0 else "truncated"), content[:keep]
        yield "zeroed", bytes(len(content))
        yield "extended", content + b"\0"
    if other != content:
        yield "swapped", other


def numbers_changed(content: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """JSON whose numbers became huge, negative, or texts: sizes that the files do not have."""
    text = content.decode()
    places = list(re.finditer(r"(?<![\w.\"-])\d+(?![\w.\"])", text))
    for match in rng.sample(places, min(len(places), 6)):
        for value in ("99999999999999999999", "-1", "1e400", '"7"', "null", "[]"):
            changed = text[: match.start()] + value + text[match.end() :]
            try:
                json.loads(changed)
            except ValueError:
                continue
            yield "number changed", changed.encode()


def answers_of(folder: Path) -> Any:
    """What a folder answers to a few queries, to be compared: rankings with rounded scores."""
    if (folder / "grls.json").is_file():
        retriever = load_retriever(folder, Opening("cpu"))
        rankings = retriever.retrieve([query.text for query in queries()[:2]], 4)
        hits = [[(hit.id, round(hit.score, 4)) for hit in hits] for hits in rankings]
        fields = retriever.corpus.select(list(range(len(retriever.corpus)))).records()
        return hits, list(fields)
    index = load_index(folder)
    rows = index.rows
    return [rows.row(int(row)).tolist() for row in rows.row_of], [_walk(index)]


def _walk(index: Any) -> list[list[int]]:
    """The prefixes of an index, level by level, as far as it goes."""
    states, levels = np.array([index.start()]), []
    for _ in range(index.rows.longest + 1):
        allowed = index.allowed(states)
        levels.append(allowed.tokens.tolist())
        states = allowed.states
        if index.rows.form == "prefixes":  # which say nothing beyond
            states = states[~index.unique(states)]
    return levels


class Damager:
    """Damages the files of folders one by one, in a copy.

    Args:
        place: The folder with all folders, which damage is done in and undone.
        seed: Decides which bits.
        flips: Regions of a file, one bit in each is flipped.
    """

    def __init__(self, place: Path, seed: int = 0, flips: int = 8):
        self.place = place
        self.rng = random.Random(seed)
        self.flips = flips
        self.results: list[Damaged] = []
        self.before: dict[str, Any] = {}

    def run(self, folders: dict[str, Path], share: float = 1.0) -> list[Damaged]:
        """Damage all files of these folders; of the damages a share, drawn at random.

        Args:
            folders: Name -> folder.
            share: The share of damages.
        """
        for name, folder in folders.items():
            self.before[name] = answers_of(folder)
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                self._file(name, folder, file, share)
        return self.results

    def _file(self, name: str, folder: Path, file: Path, share: float) -> None:
        content = file.read_bytes()
        other = self._other(file, content)
        made = list(damages(content, other, self.rng, self.flips))
        if file.suffix == ".json" and file.name in ("grls.json", INDEX):
            made += numbers_changed(content, self.rng)
        made.append(("removed", None))  # type: ignore[arg-type]
        for how, changed in made:
            if self.rng.random() < share:
                self._one(name, folder, file, how, changed)
        file.write_bytes(content)

    def _other(self, file: Path, content: bytes) -> bytes:
        """The file of the same name of another folder, with other content.

        A manifest is swapped with another thing only: that of another whole retriever makes the folder that
        retriever.
        """
        if file.name == MANIFEST:
            return b'{"format": 1, "kind": "link", "retriever": "."}'
        for other in sorted(self.place.rglob(file.name)):
            if other != file and other.is_file() and other.read_bytes() != content:
                return other.read_bytes()
        return content[::-1]

    def _one(self, name: str, folder: Path, file: Path, how: str, changed: bytes | None) -> None:
        before = file.read_bytes() if file.exists() else b""
        file.unlink(missing_ok=True)  # not through a hard link
        if changed is not None:
            file.write_bytes(changed)
        outcome, told = self._outcome(name, folder)
        self.results.append(Damaged(name, str(file.relative_to(self.place)), how, outcome, told))
        file.write_bytes(before)

    def _outcome(self, name: str, folder: Path) -> tuple[str, str]:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            answer = answers_of(folder)
        except GrlsError as error:
            text = str(error)
            outcome = REFUSED if any(part in text for part in (str(folder), str(self.place))) else UNCLEAR
            told = f"names no file: {text}" if outcome == UNCLEAR else text
        except Exception as error:
            outcome, told = UNCLEAR, f"{type(error).__name__}: {error}"
        else:
            outcome, told = (HARMLESS, "") if answer == self.before[name] else (UNDETECTED, str(answer)[:200])
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used) // 1024
        return (GREEDY, f"{more} MiB: {told}") if more > MOST_MIB else (outcome, told)


def table(results: list[Damaged]) -> str:
    """What, how often, and what came of it."""
    outcomes = (REFUSED, HARMLESS, UNDETECTED, UNCLEAR, GREEDY)
    counts = Counter((one.how, one.outcome) for one in results)
    rows = [f"| damage | files | {' | '.join(outcomes)} |", f"|---|---|{'---|' * len(outcomes)}"]
    for how in dict.fromkeys(one.how for one in results):
        numbers = [counts[how, outcome] for outcome in outcomes]
        rows.append(f"| {how} | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows)
