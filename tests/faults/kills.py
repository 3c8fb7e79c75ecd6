"""Kills commands with SIGKILL at random moments, and runs each to its end afterwards.

After a kill, no output stands half-written under a final name. After the last run, the outputs are those of
a run that was never killed, byte for byte, but for times and places in manifests and logs; and nothing else
is left beside them. A command runs in a forked process, so that what it imports is loaded once.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from biencoder_helpers import options as biencoder_options
from fault_folders import write_every_kind
from llama_small import write_llama
from train_helpers import arguments

from grls.cli import main

IGNORED = re.compile(r"seconds|time|date|created|duration|_per_second|elapsed|machine|command|runtime|flos")
"""Fields of JSON that differ from run to run."""


class Command(NamedTuple):
    """A command that writes.

    Attributes:
        name: Its name in the table.
        line: Place of the inputs and output -> arguments.
        again: The arguments after a kill, if the command must be told to go on.
        compared: What of the outputs is compared: ``bytes``, or the names of files whose bytes are.
    """

    name: str
    line: Callable[[Path, Path], list[str]]
    again: Callable[[Path, Path], list[str]] | None = None
    compared: Sequence[str] = ()


def commands() -> list[Command]:
    """All commands that write, over the folders of :func:`prepare`."""
    theory = ("--theory.subjects=5", "--theory.predicates=6", "--theory.rules=8", "--theory.max_depth=2")
    data, cpu, three = "--data=IN/data", "--device=cpu", ("--split=train", "--k=3")
    rows = [
        ("prepare ruletaker", "prepare", "ruletaker", *theory, "--train=40", "--dev=9", "--test=9",
         "--out=OUT"),
        ("prepare beir", "prepare", "beir", "--raw=IN/data", "--out=OUT"),
        ("prepare neighbours", "prepare", "neighbours", data, "--retriever=IN/bm25", "--k=2", MADE),
        ("prepare propositions", "prepare", "propositions", data, "--model=IN/llama", "--max_new_tokens=20",
         "--batch_size=2", cpu, MADE),
        ("index generative", "index", "IN/generative/model", "--corpus=IN/data", MADE),
        ("index dense", "index", "IN/bert", "--kind=dense", "--corpus=IN/data", cpu, MADE),
        ("index sparse", "index", "IN/splade-model/splade", "--corpus=IN/data", cpu, MADE),
        ("index multi-vector", "index", "IN/late-model/colbert", "--corpus=IN/data", cpu, MADE),
        ("index bm25", "index", "bm25", "--corpus=IN/data", MADE),
        ("index fusion", "index", "fusion", "IN/bm25", "IN/dense", MADE),
        ("index rescored", "index", "rescored", "IN/bm25", "--model=IN/encoder", MADE),
        ("retrieve generative", "retrieve", "IN/generative", data, *three, cpu, MADE),
        ("retrieve bm25", "retrieve", "IN/bm25", data, *three, MADE),
        ("retrieve hops", "retrieve", "IN/hops", data, *three, cpu, MADE),
        ("fuse", "fuse", "IN/runs/a.jsonl", "IN/runs/b.jsonl", MADE),
        ("evaluate", "evaluate", "IN/runs/a.jsonl", data, "--split=train", "--output=OUT.json"),
        ("fit", "fit", "IN/data", "--biencoder=none", "--generator=none", "--k=2", cpu, MADE),
    ]  # fmt: skip
    simple = [Command(name, partial(_line, words)) for name, *words in rows]
    return [*simple, *trainings()]


MADE = "--output=OUT"


def _line(words: Sequence[str], place: Path, out: Path) -> list[str]:
    """The arguments of a command: ``IN`` is the place of the inputs, ``OUT`` the output."""
    return [word.replace("IN/", f"{place}/").replace("OUT", str(out / "made")) for word in words]


def trainings() -> list[Command]:
    """Commands that train; after a kill they go on from a checkpoint where there is one."""

    def biencoder(place: Path, out: Path, *more: str) -> list[str]:
        return biencoder_options(place, out / "made", *more)

    def retrieve(place: Path, out: Path) -> list[str]:
        often = ("--trainer.val_check_interval=2", "--trainer.check_val_every_n_epoch=null")
        return ["train", *arguments("retrieve", place / "data", out / "made", *often)]

    def resumed(place: Path, out: Path) -> list[str]:
        return [*retrieve(place, out), f"--ckpt_path={out / 'made' / 'checkpoints' / 'last.ckpt'}"]

    model = ("model.safetensors",)
    resume = partial(_with, biencoder, "--resume=true")
    return [
        Command("train biencoder", biencoder, resume, model),
        Command("train retrieve", retrieve, resumed, model),
    ]


def _with(line: Callable[..., list[str]], more: str, place: Path, out: Path) -> list[str]:
    return [*line(place, out), more]


def prepare(place: Path) -> Path:
    """The inputs of all commands."""
    write_every_kind(place)
    write_llama(place / "llama", place / "data", positions=2048)
    for name, retriever in (("a", "bm25"), ("b", "dense")):
        run = ["retrieve", f"{place / retriever}", f"--data={place / 'data'}", "--split=train", "--k=3"]
        ended([*run, "--device=cpu", f"--output={place / 'runs' / name}"])
    return place


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

    def run(self, command: Command, kills: int, most: int = 3) -> None:
        """Kill one command so often, at most ``most`` times before it is run to its end."""
        whole = self._fresh("whole")
        began = time.perf_counter()
        code, said = ended(command.line(self.place, whole))
        length = time.perf_counter() - began
        if code:
            self.faults.append(f"{command.name}: ended with {code} without a kill: {said[-300:]}")
            return
        expected = contents(whole, command)
        while kills > 0:
            times = min(self.rng.randint(1, most), kills)
            kills -= times
            self._once(command, times, length, expected, whole)

    def _once(
        self, command: Command, times: int, length: float, expected: dict[str, Any], whole: Path
    ) -> None:
        out, line = self._fresh("killed"), command.line
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
        if code:
            self.faults.append(f"{command.name}: the same command again ends with {code}: {said[-400:]}")
            return
        made = contents(out, command)
        wrong = sorted(name for name in {*made, *expected} if made.get(name) != expected.get(name))
        if wrong:
            self.faults.append(f"{command.name}: other outputs than without a kill: {wrong[:4]}")
        self.look_for_litter("kill", command, out, whole)

    def look_for_litter(self, what: str, command: Command, out: Path, whole: Path) -> None:
        """Whether files are left that a run without hindrance does not leave.

        A temporary folder whose writer died before it held its lock is removed by a run a minute later.
        """
        names = {path.name for path in whole.iterdir()}
        left = [path for path in out.iterdir() if path.name not in names]
        if left and command.again is None:
            for path in left:
                os.utime(path, (time.time() - 120,) * 2)
            ended(command.line(self.place, out))
            left = [path for path in out.iterdir() if path.name not in names]
        if left:
            self.faults.append(f"{command.name}, {what}: litter is left: {[path.name for path in left]}")

    def _begun(self, out: Path) -> bool:
        return any(out.rglob("checkpoint*"))

    def _look(self, command: Command, out: Path, expected: dict[str, Any], when: str) -> None:
        """Whether a file stands half-written under its final name."""
        if command.compared:  # a training: its checkpoints have hashes of their own
            return
        for name, content in contents(out, command).items():
            if name in expected and content != expected[name] and not _grows(content, expected[name]):
                self.faults.append(f"{command.name}, {when}: {name} is half-written")

    def _fresh(self, name: str) -> Path:
        shutil.rmtree(self.work / name, ignore_errors=True)
        (self.work / name).mkdir(parents=True)
        return self.work / name


def _grows(content: Any, expected: Any) -> bool:
    """Whether a file is one that grows, and holds the first lines of what it will hold."""
    return isinstance(content, bytes) and expected.startswith(content[: content.rfind(b"\n") + 1])


TIMED = ("fit.jsonl", "timing.json", "report.html", "report.md", "README.md")
"""Files of ``grls fit`` that say how long its steps took."""


def contents(out: Path, command: Command) -> dict[str, Any]:
    """What is compared of an output: name -> bytes, or JSON without what differs from run to run."""
    kept = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if not path.is_file() or hidden or (command.compared and path.name not in command.compared):
            continue
        if (command.compared and "checkpoint" in name) or (command.name == "fit" and path.name in TIMED):
            continue
        kept[name] = without_times(path)
    return kept


def without_times(path: Path) -> Any:
    """The bytes of a file; of a JSON manifest its fields without times and places."""
    content = path.read_bytes()
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


def child(line: list[str], log: Path | int, before: Callable[[], None] = lambda: None) -> int:
    """Start a command in a forked process, which calls ``before`` first; it writes to ``log``."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        stream = log if isinstance(log, int) else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        before()
        code = main([str(word) for word in line])
        sys.stdout.flush()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(line: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    log = Path(f"/tmp/grls-kills-{os.getpid()}.log")
    _, status = os.waitpid(child(line, log), 0)
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")


def killed(line: list[str], after: float) -> bool:
    """Kill a command after so many seconds; False if it ended before."""
    pid = child(line, Path(os.devnull))
    time.sleep(after)
    done, _ = os.waitpid(pid, os.WNOHANG)
    if done:
        return False
    os.killpg(os.getpgid(pid), signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True
