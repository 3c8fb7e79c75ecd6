"""Reads a Dockerfile."""

import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
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
