"""What befalls a command beside a kill: full disks, read-only folders, second writers, little memory, clocks.

A command must then end with one line that says what to do, leave nothing half-written under a final name, and
do its work when it is run again; where nothing hinders it (another locale, a clock that runs backwards), its
output is what it always is.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_lines import Command
from forked import child, ended
from kills import Killer, contents

Hinder = Callable[[], None]


class Trials(Killer):
    """Runs commands under hindrances; ``tried`` counts them by kind."""

    def __init__(self, place: Path, work: Path, seed: int = 0):
        super().__init__(place, work, seed)
        self.tried: dict[str, int] = {}

    def all(self, command: Command, disks: int = 3) -> None:
        """All hindrances, each once, and ``disks`` sizes of a full disk."""
        if not self.unhindered(command):
            return
        whole = self.whole[1]
        expected = contents(whole, command)
        largest = max((p.stat().st_size for p in whole.rglob("*") if p.is_file()), default=2)
        for size in [0, *(self.rng.randrange(1, max(largest, 2)) for _ in range(disks - 1))]:
            self._hindered("full disk", command, whole, expected, lambda size=size: full_disk(size))
        self._hindered("out of memory", command, whole, expected, too_little_memory)
        self._unhindered("clock", command, expected, backwards)
        self._unhindered("locale", command, expected, turkish)
        self._two_writers(command, whole, expected)
        self._read_only(command)

    def _count(self, what: str) -> None:
        self.tried[what] = self.tried.get(what, 0) + 1

    def _hindered(
        self, what: str, command: Command, whole: Path, expected: dict[str, Any], hinder: Hinder
    ) -> None:
        out = self._fresh("killed", command)
        self._count(what)
        code, said = ended(command.line(self.place, out), hinder)
        self._refused(what, command, code, said)
        self._look(command, out, expected, what)
        again = [command.line] if command.again is None else [command.line, command.again]
        ends = [(0, "")]
        for line in again:
            ends = [ended(line(self.place, out))]
            if not ends[0][0]:
                break
        if ends[0][0] and not self.is_done(command, out, expected):
            self.faults.append(f"{command.name}, {what}: again it ends with {ends[0]}")
        elif (made := contents(out, command)) != expected:
            wrong = sorted(name for name in {*made, *expected} if made.get(name) != expected.get(name))
            self.faults.append(f"{command.name}, {what}: other outputs afterwards: {wrong[:4]}")
        self.look_for_litter(what, command, out, whole)

    def _refused(self, what: str, command: Command, code: int, said: str) -> None:
        lines = [line for line in said.splitlines() if line.startswith("error:")]
        if code and ("Traceback" in said or not lines):
            self.faults.append(f"{command.name}, {what}: no line says what to do: {said[-500:]}")

    def _unhindered(self, what: str, command: Command, expected: dict[str, Any], changed: Hinder) -> None:
        out = self._fresh("killed", command)
        self._count(what)
        code, said = ended(command.line(self.place, out), changed)
        if code:
            self.faults.append(f"{command.name}, {what}: ended with {code}: {said[-300:]}")
        elif contents(out, command) != expected:
            self.faults.append(f"{command.name}, {what}: other outputs")

    def _two_writers(self, command: Command, whole: Path, expected: dict[str, Any]) -> None:
        out = self._fresh("killed", command)
        self._count("two writers")
        logs = [self.work / f"writer-{n}.log" for n in range(2)]
        pids = []
        for log in logs:
            pids.append(child(command.line(self.place, out), log))
            time.sleep(self.rng.uniform(0, 0.3))
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        for code, log in zip(codes, logs, strict=True):
            self._refused("two writers", command, code, log.read_text(errors="replace"))
        if 0 not in codes:
            code, said = ended(command.line(self.place, out))
            if code and not self.is_done(command, out, expected):
                self.faults.append(f"{command.name}, two writers: again it ends with {code}: {said[-300:]}")
        if contents(out, command) != expected:
            self.faults.append(f"{command.name}, two writers: other outputs (codes {codes})")
        self.look_for_litter("two writers", command, out, whole)

    def _read_only(self, command: Command) -> None:
        out = self._fresh("killed", command)
        with read_only(out) as mounted:
            if not mounted:
                return
            self._count("read-only folder")
            code, said = ended(command.line(self.place, out))
            self._refused("read-only folder", command, code, said)
            if not code:
                self.faults.append(f"{command.name}, read-only folder: ended with 0")


def full_disk(size: int) -> None:
    """No file may grow beyond a size, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def too_little_memory() -> None:
    """The process may take 30 MiB more than it has, as under ``ulimit -v``."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 30 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def backwards() -> None:
    """A clock that is set back by an hour at every look, up to a day."""
    real, looks = time.time, iter(range(24))
    time.time = lambda: real() - 3600 * next(looks, 24)


def turkish() -> None:
    """Another locale, time zone and seed of hashes."""
    os.environ.update({"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"})
    time.tzset()
    random.seed(7)


@contextmanager
def read_only(folder: Path) -> Iterator[bool]:
    """Mount a read-only file system on a folder; yields False where that needs more rights."""
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
