"""Reads a Dockerfile, and does its COPY and RUN steps in a folder: where no docker daemon runs."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """An instruction, with its stage."""

    stage: str
    name: str
    text: str


def steps(text: str) -> Iterator[Step]:
    """The instructions of a Dockerfile in order; those before the first stage have the stage ''."""
    stage = ""
    for line in re.sub(r"\\\n", "", text).splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.strip().partition(" ")
            if name == "FROM":
                stage = rest.split(" AS ")[1].strip()
            yield Step(stage, name, rest.strip())


def command_of(found: Sequence[Step], name: str) -> list[str]:
    """The last exec form of an instruction, such as ENTRYPOINT."""
    text = [step.text for step in found if step.name == name][-1]
    command: list[str] = json.loads(text[text.index("[") :])
    return command


def is_sent(path: str, ignored: str) -> bool:
    """Whether a path is in the build context under the lines of a .dockerignore."""
    sent = True
    for line in ignored.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keep = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        parents = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 2)]
        names = path.split("/") if pattern.startswith("**/") else parents
        if any(fnmatch(name, pattern.removeprefix("**/")) for name in names):
            sent = keep
    return sent


class Stages:
    """The folders of the stages of a Dockerfile.

    Args:
        source: The build context.
        place: A folder for all stages: the absolute paths of each lead into a folder of it.
        variables: Build arguments.
    """

    def __init__(self, source: Path, place: Path, variables: Mapping[str, str]):
        self.source, self.place = source, place
        self.variables = dict(variables)
        self.folders: dict[str, str] = {}

    def do(self, found: Sequence[Step], skipped: Sequence[str]) -> None:
        """Do the steps, but RUN steps that begin with a word of ``skipped``."""
        for step in found:
            if step.name == "ARG" and "=" in step.text:
                name, _, value = step.text.partition("=")
                self.variables.setdefault(name, value)
            elif step.name == "WORKDIR":
                self.folders[step.stage] = step.text
                self.inside(step.text).mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                self._copy(step)
            elif step.name == "RUN" and step.text.split()[0] not in skipped:
                self._run(step)

    def inside(self, path: str) -> Path:
        """Where an absolute path of a stage is. Stages share the folder: no two of ours use one path."""
        return self.place / path.lstrip("/")

    def _copy(self, step: Step) -> None:
        *sources, target = [word for word in shlex.split(step.text) if not word.startswith("--")]
        if "--from=" in step.text:  # the stages share the folder
            assert sources == [target]
            return
        goal = self.inside(str(Path(self.folders.get(step.stage, "/")) / target))
        for source in sources:
            if (self.source / source).is_dir():
                shutil.copytree(self.source / source, goal, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into = goal / source if target.endswith("/") else goal
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.source / source, into)

    def _run(self, step: Step) -> None:
        text = re.sub(r"(?<![\w.])/(source|wheels|build|opt)\b", rf"{self.place}/\1", step.text)
        folder = self.inside(self.folders.get(step.stage, "/"))
        folder.mkdir(parents=True, exist_ok=True)
        print(f"RUN {text}", flush=True)
        subprocess.run(["sh", "-euc", text], cwd=folder, check=True, env={**os.environ, **self.variables})
