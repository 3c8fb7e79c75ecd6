"""Soak: a server under load for long, with clients that go, reloads, and its worker killed.

    python -m benchmarks.soak FOLDER DATA

Clients send queries without a pause. A part of them hangs up before the answer. Meanwhile the retriever is
loaded again and again, and the thread that searches is killed: an exception ends it wherever it is. With
``--process true`` the server has a worker process (``grls serve --worker.process true``), which is killed by
SIGKILL instead. Each answer is compared with that of ``retriever.search`` in this process. A request is lost
if its connection ends without a response. The memory of the server is the resident set of its processes. It
needs Linux.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

import grls
from benchmarks.common import machine, print_table
from benchmarks.http_clients import Ranking, post, rows_of, serving
from benchmarks.serve import loop
from grls.data.dataset import read_split

TOKEN = "the-token-of-the-soak"
HEADERS = (
    "requests", "right", "wrong", "other status", "lost", "cancelled", "reloads", "kills",
    "MiB at start", "in the middle", "at the end", "queries/s",
)  # fmt: skip


def serve_to_kill(folder: str, port: int, token: str, process: bool = False) -> None:
    """Serve as ``grls serve`` does; the signal USR1 kills the thread, or the process, that searches."""
    from grls.serve.options import AccessOptions, RequestLimits

    limits, access = RequestLimits(queue=1024, seconds=600), AccessOptions(admin=token)
    if process:
        from grls.serve.front.run import run_front
        from grls.serve.front.task import WorkerTask

        signal.signal(signal.SIGUSR1, lambda *_: _kill_children())
        run_front(WorkerTask((folder,), limits, access, "cpu", "float32"), "127.0.0.1", port)
        return
    from grls.serve.run import run_server

    signal.signal(signal.SIGUSR1, lambda *_: _kill_workers())
    run_server([folder], "127.0.0.1", port, limits, access, "cpu", "float32")


def _kill_children() -> None:
    for child in children():
        os.kill(child, signal.SIGKILL)


def children(process: int | None = None) -> list[int]:
    """The processes that a process has started; None: this one."""
    number = process or os.getpid()
    listed = Path(f"/proc/{number}/task/{number}/children").read_text(encoding="utf-8")
    return [int(number) for number in listed.split()]


def _kill_workers() -> None:
    """Raise an exception that nothing catches in the threads that search."""
    for thread in threading.enumerate():
        if thread.name.startswith("grls-serve-") and "-end-" not in thread.name:
            number = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))


def resident(process: int) -> float:
    """The resident memory of a process and of those that it has started, in MiB."""
    pages = [
        int(Path(f"/proc/{number}/statm").read_text(encoding="utf-8").split()[1])
        for number in (process, *children(process))
    ]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Soak:
    """A soak of the server at an address; for the other arguments see :func:`main`.

    Args:
        process: The process of the server.
        texts: The queries, sent again and again.
        expected: The ranking of each.
    """

    address: str
    process: int
    texts: Sequence[str]
    expected: Sequence[Ranking]
    k: int
    requests: int
    clients: int
    cancelled: float
    reload: float
    kills: int
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    sent: int = 0

    async def run(self) -> None:
        """Send all requests."""
        self.memory.append(resident(self.process))
        reloading = asyncio.create_task(self._reload())
        await asyncio.gather(*(self._client(random.Random(n)) for n in range(self.clients)))
        reloading.cancel()
        with suppress(asyncio.CancelledError):
            await reloading
        self.memory.append(resident(self.process))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port))

    async def _client(self, rng: random.Random) -> None:
        reader, writer = await self._open()
        while self.sent < self.requests:
            number = self.sent
            self.sent += 1
            self._on_the_way(number)
            index = number % len(self.texts)
            asking = post(reader, writer, {"query": self.texts[index], "k": self.k})
            if rng.random() < self.cancelled:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asking, rng.random() * 0.05)
                self.counts["cancelled"] += 1
            elif await self._answered(asking, index):
                continue
            writer.close()
            reader, writer = await self._open()
        writer.close()

    def _on_the_way(self, number: int) -> None:
        """Measure the memory in the middle, and kill the worker when it is time."""
        if number == self.requests // 2:
            self.memory.append(resident(self.process))
        if (
            number
            and number % max(1, self.requests // (self.kills + 1)) == 0
            and self.counts["kills"] < self.kills
        ):
            self.counts["kills"] += 1
            os.kill(self.process, signal.SIGUSR1)

    async def _answered(self, asking: Any, index: int) -> bool:
        """Count an answer; whether the connection goes on."""
        try:
            status, answer = await asking
        except (OSError, asyncio.IncompleteReadError):
            self.counts["lost"] += 1
            return False
        if status != 200:
            self.counts["other status"] += 1
        else:
            self.counts["right" if rows_of(answer) == self.expected[index] else "wrong"] += 1
        return True

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(self.reload)
            reader, writer = await self._open()
            status, _ = await post(reader, writer, {}, "/admin/reload", f"Authorization: Bearer {TOKEN}\r\n")
            writer.close()
            self.counts["reloads"] += status == 200
            self.counts["failed reloads"] += status != 200


def soak(
    folder: str,
    texts: Sequence[str],
    k: int = 10,
    requests: int = 100_000,
    clients: int = 32,
    cancelled: float = 0.1,
    reload: float = 60.0,
    kills: int = 5,
    process: bool = False,
) -> tuple[Soak, float]:
    """Serve a folder, send all requests, and return the counts and the seconds; see :class:`Soak`."""
    expected, _, _ = loop(grls.load(folder, device="cpu"), texts, k)
    with tempfile.TemporaryDirectory() as temporary:
        token = Path(temporary, "token")
        token.write_text(TOKEN, encoding="utf-8")
        target = partial(serve_to_kill, token=str(token), process=process)
        with serving(target, folder) as (address, number):
            run = Soak(address, number, texts, expected, k, requests, clients, cancelled, reload, kills)
            begun = time.perf_counter()
            asyncio.run(run.run())
            return run, time.perf_counter() - begun


def main(
    folder: str,
    data: str,
    split: str = "test",
    k: int = 10,
    queries: int = 256,
    requests: int = 100_000,
    clients: int = 32,
    cancelled: float = 0.1,
    reload: float = 60.0,
    kills: int = 5,
    process: bool = False,
) -> None:
    """Soak a server and print the counts.

    Args:
        folder: Retriever folder of any kind.
        data: Data set folder, whose queries are asked.
        split: Split of the queries.
        k: Hits of a query.
        queries: Number of distinct queries.
        requests: Number of requests.
        clients: Clients at once.
        cancelled: Part of the requests whose clients hang up before the answer.
        reload: Seconds between reloads.
        kills: How often the worker is killed.
        process: Let a worker process search, and kill that one.
    """
    rows, _ = read_split(data, split)
    texts = [query.text for query in rows[:queries]]
    run, seconds = soak(folder, texts, k, requests, clients, cancelled, reload, kills, process)
    counts = [run.counts[name] for name in HEADERS[1:8]]
    row = [
        str(requests),
        *map(str, counts),
        *(f"{mib:.0f}" for mib in run.memory),
        f"{requests / seconds:.1f}",
    ]
    print_table(f"{clients} clients, k {k}; {machine()}", HEADERS, [row])
    if (
        run.counts["wrong"]
        or run.counts["lost"]
        or run.counts["other status"]
        or run.counts["failed reloads"]
    ):
        raise SystemExit("error: there are wrong, refused or lost requests.")


if __name__ == "__main__":
    auto_cli(main)
