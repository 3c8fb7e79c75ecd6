"""Starts the worker process, and starts it again when it dies.

A worker process that is not needed any more sees its standard input end. One that dies is replaced at once,
and later and later if its successors die before a search is answered; after so many in a row the server ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.errors import ConfigError, GrlsError
from grls.io.files import temporary
from grls.serve.front.connection import WorkerConnection, open_worker
from grls.serve.front.counts import FrontCounts
from grls.serve.front.task import WorkerTask

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "grls.serve.front.child")
"""The command of a worker process."""
_PAUSE, _LONGEST = 0.5, 30.0
"""Seconds before the second start in a row, doubled for each further one, and at most."""
_GRACE = 10.0
"""Seconds in which a worker process ends that is not needed any more."""
_MESSAGE = 2**24
"""Largest number of bytes of the message of a worker process."""


class WorkerStartError(GrlsError):
    """A worker process could not be started, or died again and again."""


class WorkerProcess:
    """A worker process that answers.

    Args:
        process: The process.
        socket: The Unix socket that it listens at.
    """

    def __init__(self, process: asyncio.subprocess.Process, socket: str):
        self.process, self._socket = process, socket
        self._idle: list[WorkerConnection] = []
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[WorkerConnection]:
        """A connection for one request; it is closed unless the response was read to its end.

        Raises:
            WorkerGoneError: The process does not listen any more.
        """
        one = self._idle.pop() if self._idle else await open_worker(self._socket)
        kept = False
        try:
            yield one
            kept = one.take_next() and not self.ended.is_set()
        finally:
            if kept:
                self._idle.append(one)
            else:
                one.close()

    async def wait(self) -> str:
        """Wait until the process has ended; why it did."""
        reason = ended_by(await self.process.wait())
        self.ended.set()
        for one in self._idle:
            one.close()
        return reason


def ended_by(code: int) -> str:
    """How a process ended, from its exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + (" (perhaps for lack of memory)" if name == "SIGKILL" else "")


class Supervisor:
    """Keeps a worker process running.

    Args:
        task: What it serves.
        starts: The number of processes in a row that may end before a search is answered.
        counts: The counts.
        child: The command of a worker process.
    """

    def __init__(self, task: WorkerTask, starts: int, counts: FrontCounts, child: Sequence[str] = CHILD):
        self._task, self._starts, self._counts, self._child = task, starts, counts, child
        self._held = ExitStack()  # of the folder
        self._changed = asyncio.Event()  # set unless a process is awaited
        self._last: asyncio.subprocess.Process | None = None
        self._number, self._failed_starts, self._closing = 0, 0, False
        self.current: WorkerProcess | None = None
        self.routes: frozenset[str] = frozenset()
        self.versions: dict[str, dict[str, Any]] = {}
        self.failure: WorkerStartError | None = None
        self.on_failure: Callable[[], object] = lambda: None
        self.say: Callable[[str], object] = lambda _: None  # gets a line for each folder that is open

    async def start(self) -> None:
        """Start the first process, and wait until it is ready.

        Raises:
            WorkerStartError: It cannot serve its task; it says why.
            ConfigError: The system has no Unix sockets, or its folder of temporary files is too deep.
        """
        self._folder = _private_folder(self._held)
        try:
            worker = await self._begin()
        except BaseException:
            self._held.close()
            raise
        self._watching = asyncio.create_task(self._watch(worker))

    async def worker(self) -> WorkerProcess:
        """The process that answers, as soon as there is one.

        Raises:
            WorkerStartError: There will be none.
        """
        while self.current is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()
        return self.current

    def answered(self) -> None:
        """Note that a search was answered: the process works."""
        self._failed_starts = 0

    def note(self, version: dict[str, Any]) -> None:
        """Note the version of a retriever that answers, as the server sends it."""
        self.versions[version["retriever"]] = version

    async def close(self) -> None:
        """End the process; nothing is asked any more."""
        self._closing = True
        if self._last is not None and self._last.returncode is None:
            _close_input(self._last)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._last.wait(), _GRACE)
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        self._kill()
        self._held.close()

    async def _watch(self, worker: WorkerProcess) -> None:
        """Replace each process that ends."""
        successor: WorkerProcess | None = worker
        while successor is not None:
            self.current = successor
            self._changed.set()
            reason = await successor.wait()
            self.current = None
            if self._closing:
                return
            self._changed.clear()
            log.error("the worker process %s; another one is started", reason)
            successor = await self._again(reason)

    async def _again(self, reason: str) -> WorkerProcess | None:
        """Start another process, again and again; None: too many have ended, or the server ends."""
        while not self._closing:
            self._failed_starts += 1
            if self._failed_starts >= self._starts:
                self._give_up(reason)
                return None
            if self._failed_starts > 1:
                await asyncio.sleep(min(_LONGEST, _PAUSE * 2 ** (self._failed_starts - 2)))
            self._counts.restarts.inc()
            try:
                return await self._begin()
            except (WorkerStartError, OSError) as error:
                reason = str(error)
                log.error("the worker process cannot start: %s", reason)
        return None

    def _give_up(self, reason: str) -> None:
        times = f"{self._starts} worker processes in a row" if self._starts > 1 else "the worker process"
        text = f"{times} ended before a search was answered; the last one: {reason}."
        self.failure = WorkerStartError(text)
        self._changed.set()
        self.on_failure()

    async def _begin(self) -> WorkerProcess:
        """Start a process, and wait until it is ready."""
        begun, self._number = perf_counter(), self._number + 1
        socket = str(Path(self._folder, f"{self._number}"))
        numbers = {name: version["version"] for name, version in self.versions.items()}
        task = replace(self._task, socket=socket, numbers=numbers)
        process = self._last = await asyncio.create_subprocess_exec(
            *self._child,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            start_new_session=True,  # a signal for the terminal's group is for the front process
            limit=_MESSAGE,
        )
        message = await _message(process, task, self.say)
        self.routes = frozenset(message["routes"])
        for version in message["versions"]:
            self.note(version)
        values = {"process": process.pid, "seconds": round(perf_counter() - begun, 3)}
        log.info("the worker process is ready", extra={"values": values})
        return WorkerProcess(process, socket)

    def _kill(self) -> None:
        if self._last is not None and self._last.returncode is None:
            with suppress(ProcessLookupError):
                self._last.kill()


async def _message(
    process: asyncio.subprocess.Process, task: WorkerTask, say: Callable[[str], object]
) -> dict[str, Any]:
    """Give a process its task, and return what it says when it is ready; ``say`` gets its lines before.

    Raises:
        WorkerStartError: It cannot serve the task.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        process.stdin.write(task.line())
        await process.stdin.drain()
    message: dict[str, Any] = {"said": ""}
    while "said" in message:
        if message["said"]:
            say(message["said"])
        line = await process.stdout.readline()
        message = json.loads(line) if line else {}
    if "routes" not in message:
        _close_input(process)
        code = await process.wait()
        raise WorkerStartError(message.get("error") or f"the worker process {ended_by(code)} as it started")
    return message


def _close_input(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _private_folder(held: ExitStack) -> str:
    """A folder for sockets that no other user enters.

    The next one on this machine removes those whose front process was killed.

    Args:
        held: The folder is removed when this is closed.

    Raises:
        ConfigError: There are no Unix sockets, or its name would be too long for one.
    """
    if not hasattr(asyncio, "open_unix_connection"):
        raise ConfigError("worker.process needs Unix sockets, which this system lacks: leave it out.")
    folder = str(held.enter_context(temporary(Path(tempfile.gettempdir()) / "grls")))
    if len(os.fsencode(folder)) > 98:  # the name of a socket has up to 103 bytes
        held.close()
        raise ConfigError(
            f"the folder of temporary files has too long a name for a Unix socket: {folder}. Name a shorter "
            "one in the environment variable TMPDIR."
        )
    return folder
