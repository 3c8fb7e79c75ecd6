"""A server as a process of its own."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, NamedTuple

HELPERS = Path(__file__).parent
GRLS = "import sys; from grls.cli import main; sys.exit(main())"


class Process(NamedTuple):
    """A server that is ready: its process, its address, the lines that it has printed, and its log."""

    process: "Popen[str]"
    address: str
    printed: list[str]
    log: IO[str]


@contextmanager
def started(code: str, *arguments: object, **variables: str) -> Iterator[Process]:
    """Run code with arguments until it says that it is ready; it is killed in the end."""
    paths = os.pathsep.join([str(HELPERS.parents[1]), str(HELPERS)])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            printed: list[str] = []
            while not (printed and printed[-1].startswith("Ready: open ")):
                line = process.stdout.readline()
                assert line, process.stderr.read()
                printed.append(line.rstrip())
            yield Process(process, printed[-1].removeprefix("Ready: open "), printed, process.stderr)
        finally:
            process.kill()


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
