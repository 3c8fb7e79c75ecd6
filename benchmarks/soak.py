"""Soak: a server under load for long, with clients that go, reloads, and threads or replicas that are killed.

    python -m benchmarks.soak FOLDER --requests 20000 --replicas 2

The server is ``grls serve FOLDER`` in one process, then on Ray Serve with one replica and with ``--replicas``
of them. Clients send requests of several kinds without a pause: a query, several, a filter, a stream, a
passage. A part of them hangs up before the answer. Meanwhile the retriever is loaded again and again, and its
thread is killed: an exception ends it wherever it is. On Ray Serve a replica is killed by SIGKILL instead.

Each answer is compared with that of the retriever in this process, which answers the same requests one after
the other (``loop``). A request is lost if its connection ends without a whole response. One process loses
nothing and answers everything. On Ray Serve the requests that a replica has when it is killed may fail or be
lost, and no others. The memory is the resident set of the server's processes. It needs Linux.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
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
from typing import Any, NamedTuple
from urllib.parse import quote

from jsonargparse import auto_cli

import grls
from benchmarks.common import machine, print_table
from benchmarks.http_clients import exchange, serving
from grls.api.searcher import Searcher

TOKEN = "the-token-of-the-soak"
HEADERS = (
    "server", "requests", "right", "wrong", "failed", "lost", "cancelled", "reloads", "kills",
    "MiB at start", "at the end", "requests/s", "of the loop",
)  # fmt: skip
_QUERIES, _K = 60, 10


class Sample(NamedTuple):
    """A request with its right answer; ``body`` None: a GET."""

    path: str
    body: dict[str, Any] | None
    expected: Any


def samples_of(searcher: Searcher) -> list[Sample]:
    """Requests of all kinds, whose queries are the first words of passages."""
    corpus, samples = searcher.corpus, list[Sample]()
    passages = [corpus[number * len(corpus) // _QUERIES] for number in range(min(_QUERIES, len(corpus)))]
    texts = [" ".join(passage.text.split()[:4]) for passage in passages]
    for number, (text, passage) in enumerate(zip(texts, passages, strict=True)):
        several = [text, *texts[:2]]
        allowed = [other.id for other in passages[number % 2 :: 2]]
        *_, last = searcher.stream(text)
        samples += [
            Sample("/v1/search", {"query": text, "k": _K}, _ids([searcher.search(text, _K)])),
            Sample("/v1/search", {"query": several, "k": _K}, _ids(searcher.search(several, _K))),
            Sample(
                "/v1/search",
                {"query": text, "k": _K, "allow": allowed},
                _ids([searcher.search(text, _K, allow=allowed)]),
            ),
            Sample("/v1/stream", {"query": text}, _ids([last.chain])[0]),
            Sample(f"/v1/passages/{quote(passage.id, safe='')}", None, passage.text),
        ]
    return samples


def _ids(rankings: Any) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in rankings]


def answer_in(path: str, content: bytes) -> Any:
    """What is compared of the content of a response; None: it is no whole answer."""
    if path == "/v1/search":
        return [[hit["id"] for hit in result["hits"]] for result in json.loads(content)["results"]]
    if path != "/v1/stream":
        return json.loads(content)["text"]
    *hops, end = content.strip().split(b"\n\n")
    if not end.startswith(b"event: end"):
        return None
    return json.loads(hops[-1].partition(b"data: ")[2])["chain"] if hops else []


def serve_to_kill(folder: str, port: int, token: str, replicas: int) -> None:
    """Serve as ``grls serve`` does; ``replicas`` 0: in one process, where USR1 kills threads that search."""
    from grls.serve.options import AccessOptions, RequestLimits, ServerOptions

    limits, access = RequestLimits(queue=1024, seconds=600), AccessOptions(admin=token)
    options = ServerOptions({"one": folder}, limits, access, "cpu")
    if replicas:
        from grls.serve.replicas import run_replicas

        run_replicas(options, "127.0.0.1", port, "local", replicas)
        return
    from grls.serve.run import run_server

    signal.signal(signal.SIGUSR1, lambda *_: _kill_threads())
    run_server(options, "127.0.0.1", port)


def _kill_threads() -> None:
    """Raise an exception that nothing catches in the threads that search."""
    for thread in threading.enumerate():
        if thread.name.startswith("grls-serve-") and not thread.name.startswith(
            ("grls-serve-http", "grls-serve-end-")
        ):
            number = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))


def family(process: int) -> list[int]:
    """A process and those that it, or one of them, has started."""
    with suppress(FileNotFoundError):  # it has ended
        listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
        return [process, *(number for child in listed.split() for number in family(int(child)))]
    return []


def resident(process: int) -> float:
    """The resident memory of a process and of those that it has started, in MiB."""
    pages = 0
    for number in family(process):
        with suppress(FileNotFoundError):
            pages += int(Path(f"/proc/{number}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def replicas_of(process: int) -> list[int]:
    """The processes of the replicas on Ray Serve that a process has started."""
    found = []
    for number in family(process):
        with suppress(FileNotFoundError):
            if b"ServeReplica" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(number)
    return found


@dataclass
class Soak:
    """A soak of the server at an address; for the other arguments see :func:`main`.

    Args:
        process: The process of the server.
        samples: The requests, sent again and again.
        replicas: Number of replicas on Ray Serve; 0: one process.
    """

    address: str
    process: int
    samples: Sequence[Sample]
    replicas: int
    requests: int
    clients: int = 32
    cancelled: float = 0.1
    reload: float = 60.0
    kills: int = 5
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

    @property
    def faults(self) -> list[str]:
        """What must not be: wrong answers, and more errors than requests that were with a killed replica."""
        faults = [name for name in ("wrong", "failed reloads") if self.counts[name]]
        most = self.clients * self.counts["kills"] if self.replicas else 0
        return faults + (["errors"] if self.counts["failed"] + self.counts["lost"] > most else [])

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port))

    async def _client(self, rng: random.Random) -> None:
        reader, writer = await self._open()
        while self.sent < self.requests:
            number = self.sent
            self.sent += 1
            self._kill_at(number)
            sample = self.samples[number % len(self.samples)]
            response = exchange(reader, writer, sample.path, sample.body)
            if rng.random() < self.cancelled:
                with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                    await asyncio.wait_for(response, rng.random() * 0.05)
                self.counts["cancelled"] += 1
            elif await self._answered(response, sample):
                continue
            writer.close()
            reader, writer = await self._open()
        writer.close()

    def _kill_at(self, number: int) -> None:
        """Kill the thread, or a replica, when it is time."""
        due = number and number % max(1, self.requests // (self.kills + 1)) == 0
        if due and self.counts["kills"] < self.kills:
            self.counts["kills"] += 1
            if not self.replicas:
                os.kill(self.process, signal.SIGUSR1)
            for replica in replicas_of(self.process)[:1]:
                os.kill(replica, signal.SIGKILL)

    async def _answered(self, response: Any, sample: Sample) -> bool:
        """Count an answer; whether the connection goes on."""
        try:
            status, content = await response
        except (OSError, asyncio.IncompleteReadError):
            self.counts["lost"] += 1
            return False
        if status != 200:
            self.counts["failed"] += 1
            self.counts[f"status {status}"] += 1
            return False  # the proxy of Ray Serve says `Connection: close`
        answer = answer_in(sample.path, content)
        self.counts["lost" if answer is None else "right" if answer == sample.expected else "wrong"] += 1
        return True

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(self.reload)
            reader, writer = await self._open()
            with suppress(OSError, asyncio.IncompleteReadError):  # its replica was killed
                token = f"Authorization: Bearer {TOKEN}\r\n"
                status, _ = await exchange(reader, writer, "/admin/reload", {}, token)
                going_on = bool(self.replicas) and status in (500, 503)  # replicas are being replaced
                self.counts["reloads" if status == 200 else "busy" if going_on else "failed reloads"] += 1
            writer.close()


def soak(
    folder: str, samples: Sequence[Sample], replicas: int, requests: int, **more: Any
) -> tuple[Soak, float]:
    """Serve a folder, send all requests, and return the counts and the seconds; see :class:`Soak`."""
    with tempfile.TemporaryDirectory() as temporary:
        token = Path(temporary, "token")
        token.write_text(TOKEN, encoding="utf-8")
        target = partial(serve_to_kill, token=str(token), replicas=replicas)
        with serving(target, folder) as (address, process):
            run = Soak(address, process, samples, replicas, requests, **more)
            begun = time.perf_counter()
            asyncio.run(run.run())
            return run, time.perf_counter() - begun


def main(
    folder: str,
    requests: int = 100_000,
    replicas: int = 2,
    clients: int = 32,
    cancelled: float = 0.1,
    reload: float = 60.0,
    kills: int = 5,
) -> None:
    """Soak servers and print the counts.

    Args:
        folder: Retriever folder of any kind.
        requests: Number of requests to each server.
        replicas: Most replicas on Ray Serve; 0: one process alone.
        clients: Clients at once.
        cancelled: Part of the requests whose clients hang up before the answer.
        reload: Seconds between reloads.
        kills: How often the thread, or a replica, is killed.
    """
    searcher = grls.load(folder, device="cpu")
    samples, begun = samples_of(searcher), time.perf_counter()
    samples_of(searcher)  # again, for the time: the first search of all is slower
    loop = len(samples) / (time.perf_counter() - begun)
    rows = [["loop", str(len(samples)), *[""] * 9, f"{loop:.1f}", "1.00"]]
    faults, errors = list[str](), Counter[str]()
    for count in sorted({0, min(1, replicas), replicas}):
        name = {0: "one process", 1: "1 replica"}.get(count, f"{count} replicas")
        more: dict[str, Any] = {"clients": clients, "cancelled": cancelled, "reload": reload, "kills": kills}
        run, seconds = soak(folder, samples, count, requests, **more)
        faults += [f"{name}: {fault}" for fault in run.faults]
        errors += Counter({key: n for key, n in run.counts.items() if key.startswith("status")})
        counts = [str(run.counts[column]) for column in HEADERS[2:9]]
        memory, rate = [f"{mib:.0f}" for mib in run.memory], requests / seconds
        rows.append([name, str(requests), *counts, *memory, f"{rate:.1f}", f"{rate / loop:.2f}"])
    print_table(f"{clients} clients, k {_K}; {machine()}", HEADERS, rows)
    print("errors by status:", ", ".join(f"{key}: {n}" for key, n in sorted(errors.items())) or "none")
    if faults:
        raise SystemExit(f"error: there are {', '.join(faults)}.")


if __name__ == "__main__":
    auto_cli(main)
