"""The server against a loop of searches in one process, and against a handler without batching, in one run.

    python -m benchmarks.serve FOLDER DATA

Queries a second at saturation, and p50, p95 and p99 of the seconds of a request, for several numbers of
clients; each client sends a query when the one before is answered. The servers run in processes of their own,
the clients in this one. All results are compared with those of the loop.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from jsonargparse import auto_cli

import grls
from benchmarks.common import machine, print_table
from grls.api.searcher import Searcher
from grls.data.dataset import read_split
from grls.data.types import Hit

HEADERS = ("", "clients", "queries/s", "of the loop", "p50 ms", "p95 ms", "p99 ms", "wrong")
Ranking = list[str]


def loop(searcher: Searcher, texts: Sequence[str], k: int) -> tuple[list[Ranking], list[float], float]:
    """Results, seconds of each query, and seconds of all, in a loop of single searches."""
    rankings, took, begun = [], [], time.perf_counter()
    for text in texts:
        before = time.perf_counter()
        hits: list[Hit] = searcher.search(text, k)
        took.append(time.perf_counter() - before)
        rankings.append([hit.id for hit in hits])
    return rankings, took, time.perf_counter() - begun


def serve_grls(folder: str, port: int) -> None:
    """Serve as ``grls serve`` does, with room for all clients."""
    from grls.serve.options import OPEN_ACCESS, RequestLimits
    from grls.serve.run import run_server

    run_server(
        [folder], "127.0.0.1", port, RequestLimits(queue=1024, seconds=600), OPEN_ACCESS, "cpu", "float32"
    )


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
    """Serve, with the lines of the log written to nowhere; a failure says why."""
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
            try:
                httpx.get(f"{address}/ready")
                break
            except httpx.TransportError:
                if not process.is_alive():
                    raise SystemExit("the server did not start") from None
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
            place, text = waiting.pop()
            before = time.perf_counter()
            _, answer = await post(reader, writer, {"query": text, "k": k})
            took[place] = time.perf_counter() - before
            rankings[place] = rows_of(answer)
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
    """The status and the body of a response; a client of a library would need more time than the server."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length"))
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))


def row(name: str, clients: int, took: Sequence[float], seconds: float, base: float, wrong: int) -> list[str]:
    """A row of the table."""
    rate = len(took) / seconds
    percentiles = [f"{1000 * np.percentile(took, part):.0f}" for part in (50, 95, 99)]
    return [name, str(clients), f"{rate:.1f}", f"{rate / base:.2f}", *percentiles, str(wrong)]


def main(
    folder: str,
    data: str,
    split: str = "test",
    k: int = 10,
    queries: int = 256,
    clients: tuple[int, ...] = (1, 8, 32, 128),
) -> None:
    """Compare the server with a loop and with a plain handler.

    Args:
        folder: Retriever folder of any kind.
        data: Data set folder, whose queries are asked, again and again if there are too few.
        split: Split of the queries.
        k: Hits of a query.
        queries: Number of queries of each case.
        clients: Numbers of clients.
    """
    asked, _ = read_split(data, split)
    texts = [asked[n % len(asked)].text for n in range(queries)]
    searcher = grls.load(folder, device="cpu")
    searcher.search(texts[0], k)
    expected, took, seconds = loop(searcher, texts, k)
    base = len(texts) / seconds
    rows = [row("loop", 1, took, seconds, base, 0)]
    for name, target in (("grls serve", serve_grls), ("plain handler", serve_plainly)):
        with serving(target, folder) as (address, _):
            asyncio.run(ask_all(address, texts[:8], k, 2))
            for count in clients:
                found, took, seconds = asyncio.run(partial(ask_all, address, texts, k, count)())
                wrong = sum(one != other for one, other in zip(found, expected, strict=True))
                rows.append(row(name, count, took, seconds, base, wrong))
    print_table(f"{searcher!r}, {queries} queries, k {k}; {machine()}", HEADERS, rows)


if __name__ == "__main__":
    auto_cli(main)
