"""Clients that are slow, many, gone or hostile: the server goes on for the others."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_helpers import Slow, behind_socket, listening, serving_of
from serve_process import GRLS, started

from grls.io.files import PartTimer
from grls.serve.guards import Gate
from grls.serve.options import OPEN_ACCESS, RequestLimits

HALF = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(address: str, sent: bytes = b"") -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), 10)
    client.sendall(sent)
    return client


def ended(client: socket.socket) -> bytes:
    """What comes until the server closes the connection; fails where it does not."""
    received = b""
    try:
        while part := client.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    client.close()
    return received


def test_a_header_has_a_deadline() -> None:
    limits = RequestLimits(header=0.3)
    with behind_socket(serving_of({"slow": Slow()}, limits)) as address:
        silent, half = connected(address), connected(address, HALF)
        again = connected(address, WHOLE)  # its second header does not come
        assert again.recv(65536).startswith(b"HTTP/1.1 200")
        again.sendall(HALF)
        begun = time.monotonic()
        with suppress(OSError):  # it has ended
            for _ in range(20):  # a byte now and then is no header
                time.sleep(0.1)
                half.sendall(b"a")
        assert time.monotonic() - begun < 1.9
        assert [ended(client) for client in (silent, half, again)] == [b"", b"", b""]
        body = connected(address, HALF + b"Content-Length: 2\r\n\r\n")
        time.sleep(0.5)  # a body has the time of the request
        body.sendall(b"{}")
        assert body.recv(65536).startswith(b"HTTP/1.1 422")
        body.close()


def test_as_many_connections_as_there_may_be() -> None:
    limits = RequestLimits(connections=20, header=60)
    with behind_socket(serving_of({"slow": Slow()}, limits)) as address, ExitStack() as opened:
        first = connected(address)
        for _ in range(60):
            opened.enter_context(closing(connected(address, HALF)))
        assert ended(first) == b""
        assert httpx.get(f"{address}/health", timeout=10).status_code == 200


FEW_FILES = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))
{GRLS}
"""


def test_half_open_connections_do_not_take_all_files(hostile: Path) -> None:
    with started(FEW_FILES, "serve", hostile, "--port=0") as server, ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(closing(connected(server.address, HALF)))
        for _ in range(3):
            assert httpx.get(f"{server.address}/health", timeout=5).status_code == 200
        server.process.terminate()
        assert server.log.read().count("Errno 24") < 10


SPINNING = f"""
import time
from grls.serve.worker import SearchJob
def work(self, batch, queue):
    end = time.monotonic() + 6
    while time.monotonic() < end:
        pass
    return False
SearchJob.work = work
{GRLS}
"""


def test_searches_that_keep_the_interpreter_do_not_keep_health_waiting(hostile: Path) -> None:
    folders = [f"r{number}={hostile}" for number in range(12)]
    with started(SPINNING, "serve", *folders, "--port=0") as server, ExitStack() as opened:
        for number in range(12):
            body = b'{"query": "a", "retriever": "r%d"}' % number
            head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            opened.enter_context(closing(connected(server.address, HALF + head + body)))
        time.sleep(0.5)
        took = []
        with httpx.Client() as client:
            for _ in range(5):
                begun = time.perf_counter()
                assert client.get(f"{server.address}/ready", timeout=10).status_code == 200
                took.append(time.perf_counter() - begun)
        assert max(took) < 2, took  # the searches take 6


def test_a_request_whose_client_has_gone_is_not_begun_and_who_is_there_at_the_end_is_answered() -> None:
    begun, busy, go_on = list[str](), threading.Event(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            begun.append(scope["path"])
            busy.set()
            assert go_on.wait(10)  # keeps the loop
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    with listening(app) as (address, server):
        clients = [connected(address, WHOLE)]
        assert busy.wait(10)
        for _ in range(50):
            connected(address, WHOLE.replace(b"health", b"gone")).close()
        clients += [connected(address, WHOLE) for _ in range(40)]
        time.sleep(0.3)  # so that the server ends before it has taken more than a few of them
        server.should_exit = True
        go_on.set()
        assert all(ended(client).startswith(b"HTTP/1.1 204") for client in clients)
    assert begun == ["/health"] * 41


@pytest.mark.parametrize("chunks", [b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"])
def test_a_body_of_two_lengths_ends_the_connection(chunks: bytes) -> None:
    head = HALF + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
    with behind_socket(serving_of({"slow": Slow()})) as address:
        answers = ended(connected(address, head + chunks + WHOLE))
        assert answers.startswith(b"HTTP/1.1 400")
        assert answers.count(b"HTTP/1.1") == 1
        long = b"X: " + b"a" * 20_000 + b"\r\n"  # h11 bounds headers
        assert ended(connected(address, HALF + long)).startswith(b"HTTP/1.1 400")


CALL = {"name": "search", "arguments": {"query": "a", "retriever": "bm25"}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/trace", {"query": "a"}),
        ("v1/explain", {"query": "a", "gold": ["r0"]}),
        ("v1/search", {"query": ["a", "b"], "retriever": "bm25"}),
        ("v1/stream", {"query": "a", "retriever": "bm25"}),
        ("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}),
    ],
)
def test_a_call_ends_with_its_client_or_its_time(
    kinds: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    looping, over = threading.Event(), threading.Event()

    def endless(*_: Any, **__: Any) -> None:
        try:
            while True:
                with PartTimer("decoder"):
                    looping.set()
                    time.sleep(0.005)
        finally:
            over.set()

    monkeypatch.setattr("grls.explain.beams.trace_beam", endless)
    monkeypatch.setattr("grls.api.searcher.Searcher.explain", endless)
    monkeypatch.setattr("grls.retrieve.bm25.BM25Retriever.retrieve", endless)
    serving = serving_of({"one": kinds / "generative", "bm25": kinds / "bm25"})
    with behind_socket(serving, tools=True) as address:
        request = httpx.Request("POST", f"{address}/{path}", json=body, headers={"Accept": "application/json"})
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        client = connected(address, f"POST /{path} HTTP/1.1\r\n{lines}\r\n".encode() + request.content)
        assert looping.wait(5)
        client.close()
        assert over.wait(10)
        over.clear()
        serving.options = serving.options._replace(limits=RequestLimits(seconds=0.2))
        assert "took longer than the 0.2 s" in httpx.Client(timeout=30).send(request).text
        assert over.wait(10)
        assert httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code == 200


def test_more_requests_than_there_is_room_for_are_not_read() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def ask(gate: Gate, path: str) -> int:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "path": path, "headers": [], "method": "POST", "server": ("a", 1)}
        await gate(scope | {"query_string": b"", "scheme": "http"}, lambda: None, send)  # type: ignore[arg-type]
        return int(said[0]["status"])

    async def asked() -> list[int]:
        gate = Gate(app, None, OPEN_ACCESS, 2, None)
        paths = ("/v1/search", "/v1/search", "/v1/search", "/health")
        codes = list(await asyncio.gather(*(ask(gate, path) for path in paths)))
        return [*codes, await ask(gate, "/v1/search")]

    assert asyncio.run(asked()) == [204, 204, 503, 204, 204]


def test_a_request_that_would_wait_long_is_refused_before_it_waits(slow: Any) -> None:
    client, _ = slow(takes=0.1, wait=0.5, batch=1, queue=50)
    for _ in range(8):
        assert client.post("/v1/search", json={"query": "a"}).status_code == 200
    with ThreadPoolExecutor(20) as pool:
        asked = list(pool.map(lambda _: client.post("/v1/search", json={"query": "a"}), range(20)))
    codes = [answer.status_code for answer in asked]
    assert set(codes) == {200, 429}
    assert 3 < codes.count(200) < 20
    late = next(answer for answer in asked if answer.status_code == 429)
    assert 1 <= int(late.headers["retry-after"]) <= 60
    assert "wait too long" in late.json()["detail"]
    assert client.post("/v1/search", json={"query": "a"}).status_code == 200
