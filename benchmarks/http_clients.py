"""Servers in processes of their own, and clients of them, for the benchmarks of the server.

A client of a library would need more time than the server, so requests are written to sockets by hand.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grls

Ranking = list[str]


def serve_grls(folder: str, port: int) -> None:
    """Serve as ``grls serve`` does, with room for all clients."""
    import uvicorn

    from grls.serve.options import RequestLimits, ServerOptions
    from grls.serve.run import run_server

    run = uvicorn.Server.run

    def named(*arguments: Any) -> None:
        Path("/proc/thread-self/comm").write_text("http", encoding="utf-8")  # for processor_seconds
        run(*arguments)

    uvicorn.Server.run = named  # type: ignore[assignment, method-assign, unused-ignore]
    limits = RequestLimits(queue=1024, seconds=600)
    run_server(ServerOptions({"one": folder}, limits, device="cpu"), "127.0.0.1", port)


def serve_plainly(folder: str, port: int) -> None:
    """Serve by a plain handler: a search a request, in FastAPI's threads."""
    import uvicorn
    from fastapi import FastAPI

    searcher, app = grls.load(folder, device="cpu"), FastAPI()

    def search(body: dict[str, Any]) -> dict[str, Any]:
        hits = [hit._asdict() for hit in searcher.search(body["query"], body["k"])]
        return {"results": [{"hits": hits}]}

    app.add_api_route("/v1/search", search, methods=["POST"])
    app.add_api_route("/ready", lambda: {}, methods=["GET"])
    uvicorn.run(app, port=port, log_level="error")


def _quietly(target: Callable[..., None], folder: str, port: int) -> None:
    """Serve, with the lines of the log written to nowhere, until SIGTERM; a failure says why."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    nowhere, errors = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(nowhere, 2)
    try:
        target(folder, port)
    except BaseException:
        os.dup2(errors, 2)
        raise


@contextmanager
def serving(target: Callable[..., None], folder: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; yields its address and the number of the process."""
    import httpx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_quietly, args=(target, folder, port))
    process.start()
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{address}/ready").status_code == 200:
                    break
            if not process.is_alive():
                raise SystemExit("the server did not start")
            time.sleep(0.2)
        yield address, process.pid or 0
    finally:
        process.terminate()
        process.join()


async def ask_all(
    address: str, texts: Sequence[str], k: int, clients: int
) -> tuple[list[Ranking], list[float], float]:
    """Results, seconds of each request, and seconds of all, with so many clients at once."""
    waiting, took = list(enumerate(texts))[::-1], [0.0] * len(texts)
    rankings: list[Ranking] = [[] for _ in texts]
    host, port = address.removeprefix("http://").split(":")

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while waiting:
            number, text = waiting.pop()
            before = time.perf_counter()
            _, answer = await post(reader, writer, {"query": text, "k": k})
            took[number] = time.perf_counter() - before
            rankings[number] = rows_of(answer)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return rankings, took, time.perf_counter() - begun


def rows_of(answer: Any) -> Ranking:
    """The ids of the hits of a response to one query."""
    return [hit["id"] for hit in answer["results"][0]["hits"]]


async def post(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    body: object,
    path: str = "/v1/search",
    headers: str = "",
) -> tuple[int, Any]:
    """The status of a response, and its JSON."""
    status, content = await exchange(reader, writer, path, body, headers)
    return status, json.loads(content)


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: object, headers: str = ""
) -> tuple[int, bytes]:
    """The status and the content of a response, which may come in chunks; ``body`` None: of a GET."""
    if body is None:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    else:
        send(writer, body, path, headers)
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    status, content = int(lines[0].split()[1]), b""
    lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length")]
    if lengths:
        return status, await reader.readexactly(lengths[0])
    while size := int(await reader.readuntil(b"\r\n"), 16):
        content += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return status, content


async def ask_first_hops(
    address: str, texts: Sequence[str], k: int, clients: int
) -> tuple[list[float], list[float]]:
    """Seconds of single-step searches, and seconds to the first event of streams, in alternation."""
    waiting, searches, firsts = list(texts), list[float](), list[float]()
    host, port = address.removeprefix("http://").split(":")

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while waiting:
            body = {"query": waiting.pop()}
            before = time.perf_counter()
            await post(reader, writer, {**body, "k": k, "hops": {"steps": "single"}})
            searches.append(time.perf_counter() - before)
            before = time.perf_counter()
            send(writer, {**body, "hops": {"steps": "fixed", "max": 3}}, "/v1/stream")
            await reader.readuntil(b"\n\n")
            firsts.append(time.perf_counter() - before)
            await reader.readuntil(b"\r\n0\r\n\r\n")  # the end of the other events
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return searches, firsts


def send(writer: asyncio.StreamWriter, body: object, path: str, headers: str = "") -> None:
    """Send a request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)


def processor_seconds(process: int, http: bool = False) -> float:
    """Seconds of the processors that a process has used, or its thread of HTTP alone; it needs Linux."""
    folders, ticks = [Path(f"/proc/{process}")], 0
    if http:
        threads = Path(f"/proc/{process}/task").iterdir()
        folders = [thread for thread in threads if (thread / "comm").read_text(encoding="utf-8") == "http\n"]
    for folder in folders:
        fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
