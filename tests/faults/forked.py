"""Commands in forked processes, so that what they import is loaded once: run to their end, or killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from grls.cli import main


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


def ended(line: list[str], before: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """The exit code of a command, in whose process ``before`` is called first, and what it said."""
    heard, spoken = os.pipe()  # a file could not grow where the disk is full
    pid = child(line, spoken, before)
    os.close(spoken)
    with os.fdopen(heard, encoding="utf-8", errors="replace") as stream:
        said = stream.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said


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
