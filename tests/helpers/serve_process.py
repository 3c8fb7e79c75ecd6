"""A server as a process of its own."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, NamedTuple

HELPERS = Path(__file__).parent
GRLS = "import sys; from grls.cli import main; sys.exit(main())"


class Process(NamedTuple):
    """A server that answers: its process, its address, what it prints, its log, and the lines read of it."""

    process: "Popen[str]"
    address: str
    printed: IO[str]
    log: IO[str]
    lines: list[str]


@contextmanager
def started(code: str, *arguments: object, **variables: str) -> Iterator[Process]:
    """Run code with arguments until it logs its address; it is killed in the end."""
    paths = os.pathsep.join([str(HELPERS.parents[1]), str(HELPERS)])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            assert found, lines
            yield Process(process, found[0], process.stdout, process.stderr, lines)
        finally:
            process.kill()
