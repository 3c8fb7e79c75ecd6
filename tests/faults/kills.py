"""Kills commands with SIGKILL at random moments, and runs each to its end afterwards.

After a kill, no output stands half-written under a final name. After the last run, the outputs are those of
a run that was never killed, byte for byte, but for times and places in manifests and logs; and nothing else
is left beside them.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from command_lines import Command
from forked import ended, killed

IGNORED = re.compile(
    r"seconds|time|date|created|duration|_per_second|elapsed|machine|command|runtime|flos|computed"
)
"""Fields of JSON that differ from run to run; a run that resumes has ``computed`` some tokens twice."""

_SECONDS = re.compile(rb',? ?"(seconds|computed)": [-+.e\d]+')
"""What a line of JSONL says about time and work."""


class Killer:
    """Kills commands and counts what is lost.

    Args:
        place: The inputs.
        work: Where outputs are written.
        seed: Decides the moments.
    """

    def __init__(self, place: Path, work: Path, seed: int = 0):
        self.place, self.work = place, work
        self.rng = random.Random(seed)
        self.kills = 0
        self.faults: list[str] = []
        self.scratch = set_scratch(work.parent / "tmp")
        self.earlier: dict[str, Any] = {}
        """What stands before the command, where it changes a folder in place."""
        self.whole = ("", work / "whole", 0.0)
        """The command that nothing hindered last, its outputs, and the seconds that it took."""

    def unhindered(self, command: Command) -> bool:
        """Run a command to its end, into :attr:`whole`; False: it failed."""
        if self.whole[0] == command.name:
            return True
        whole, began = self._fresh("whole", command), time.perf_counter()
        code, said = ended(command.line(self.place, whole))
        if code:
            self.faults.append(f"{command.name}: ended with {code} without a hindrance: {said[-300:]}")
        else:
            self.whole = (command.name, whole, time.perf_counter() - began)
        return not code

    def run(self, command: Command, kills: int, most: int = 3) -> None:
        """Kill one command so often, at most ``most`` times before it is run to its end."""
        if not self.unhindered(command):
            return
        _, whole, length = self.whole
        expected = contents(whole, command)
        while kills > 0:
            times = min(self.rng.randint(1, most), kills)
            kills -= times
            self._once(command, times, length, expected, whole)

    def _once(
        self, command: Command, times: int, length: float, expected: dict[str, Any], whole: Path
    ) -> None:
        out, line = self._fresh("killed", command), command.line
        for _ in range(times):
            after = self.rng.uniform(0, length)
            if killed(line(self.place, out), after):
                self.kills += 1
                self._look(command, out, expected, f"killed after {after:.3f} s")
            line = command.line if not self._begun(out) else (command.again or command.line)
        code, said = ended(line(self.place, out))
        if code and command.again is not None:  # the error says which of both it must be
            other = command.again if line is command.line else command.line
            code, said = ended(other(self.place, out))
        made = contents(out, command)
        if code and not self.is_done(command, out, expected):
            self.faults.append(f"{command.name}: the same command again ends with {code}: {said[-400:]}")
            return
        wrong = sorted(name for name in {*made, *expected} if made.get(name) != expected.get(name))
        if wrong:
            self.faults.append(f"{command.name}: other outputs than without a kill: {wrong[:4]}")
        self.look_for_litter("kill", command, out, whole)

    def is_done(self, command: Command, out: Path, expected: dict[str, Any]) -> bool:
        """Whether a folder is changed as it should be, so that the same command again may be refused."""
        return bool(command.copied) and contents(out, command) == expected

    def look_for_litter(self, what: str, command: Command, out: Path, whole: Path) -> None:
        """Whether files are left that a run without hindrance does not leave.

        A temporary folder whose writer died before it held its lock is removed by a run a minute later.
        """
        left = self._litter(out, whole)
        if left and (command.again is None or left[0].parent == self.scratch):
            for path in left:
                os.utime(path, (time.time() - 120,) * 2)
            ended((command.again or command.line)(self.place, out))
            left = self._litter(out, whole)
        if left:
            self.faults.append(f"{command.name}, {what}: litter is left: {[path.name for path in left]}")
        for path in self.scratch.iterdir():  # each fault is reported once
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _litter(self, out: Path, whole: Path) -> list[Path]:
        """What is left in the system's folder of temporary files, and beside the outputs."""
        names = {path.name for path in whole.iterdir()}
        return [*self.scratch.iterdir(), *(path for path in out.iterdir() if path.name not in names)]

    def _begun(self, out: Path) -> bool:
        return any(out.rglob("checkpoint*"))

    def _look(self, command: Command, out: Path, expected: dict[str, Any], when: str) -> None:
        """Whether a file stands half-written under its final name."""
        if command.compared:  # a training: its checkpoints have hashes of their own
            return
        for name, content in contents(out, command).items():
            known = (expected.get(name), self.earlier.get(name))
            if name in expected and content not in known and not _grows(content, expected[name]):
                self.faults.append(f"{command.name}, {when}: {name} is half-written")

    def _fresh(self, name: str, command: Command) -> Path:
        """An empty place for outputs, or what the command changes in place."""
        out = self.work / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for number, copied in enumerate(command.copied):
            shutil.copytree(self.place / copied, out / (copied if number else "made"))
        self.earlier = contents(out, command)
        return out


def set_scratch(folder: Path) -> Path:
    """Make a folder the system's one of temporary files, for all commands from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def _grows(content: Any, expected: Any) -> bool:
    """Whether a file is one that grows, and holds the first lines of what it will hold."""
    return isinstance(content, bytes) and expected.startswith(content[: content.rfind(b"\n") + 1])


TIMED = re.compile(r"fit\.jsonl|clock\.json|report\.html|README\.md|.*\.log")
"""Files of ``grls fit`` that say how long its steps took, and what each call has printed."""


def contents(out: Path, command: Command) -> dict[str, Any]:
    """What is compared of an output: name -> bytes, or JSON without what differs from run to run."""
    kept = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if not path.is_file() or hidden or (command.compared and path.name not in command.compared):
            continue
        if (command.compared and "checkpoint" in name) or (
            command.name == "fit" and TIMED.fullmatch(path.name)
        ):
            continue
        kept[name] = without_times(path)
    return kept


def without_times(path: Path) -> Any:
    """The bytes of a file: JSONL without seconds, a manifest without times and places."""
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        return _SECONDS.sub(b"", content)
    if path.suffix != ".json":
        return content
    try:
        return _kept(json.loads(content))
    except ValueError:
        return content


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: _kept(v) for k, v in value.items() if not IGNORED.search(k) and k not in ("output", "seal")
        }
    if isinstance(value, list):
        return [_kept(one) for one in value]
    return re.sub(r"/\S*/(whole|killed)/", "/", value) if isinstance(value, str) else value
