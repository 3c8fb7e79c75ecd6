"""Clients that are slow, many, gone or hostile: the server goes on for the others."""

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
from serve_process import GRLS, started, until

from grls.io.timing import PartTimer
from grls.serve.options import RequestLimits, ServerOptions

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


def half(method: bytes, path: bytes, length: bytes = b"Content-Length: 100") -> bytes:
    """A request whose body does not come whole."""
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (method, path, length) + b"1\r\n{\r\n"


def drip(client: socket.socket) -> bytes:
    """What a client gets that sends a byte now and then, until the server closes the connection."""
    with suppress(OSError):
        for _ in range(200):
            client.sendall(b"1\r\n1\r\n")
            time.sleep(0.05)
        raise AssertionError
    return ended(client)[9:12]


def test_a_header_and_a_body_have_deadlines() -> None:
    limits = RequestLimits(header=0.3)
    with behind_socket(serving_of({"slow": Slow()}, limits)) as address, ThreadPoolExecutor(10) as pool:
        again = connected(address, WHOLE)  # its second header does not come
        assert again.recv(65536).startswith(b"HTTP/1.1 200")
        assert ended(connected(address)) == b""
        assert b"HTTP" not in ended(again)
        chunked = half(b"POST", b"/v1/search", b"Transfer-Encoding: chunked")
        begun = [HALF + b"a", half(b"POST", b"/v1/search"), chunked, half(b"POST", b"/v1/none")]
        begun += [half(b"POST", b"/health"), half(b"GET", b"/health"), half(b"GET", b"/none")]
        statuses = pool.map(drip, [connected(address, sent) for sent in begun])
        assert list(statuses) == [b"", b"408", b"408", b"404", b"405", b"200", b"404"]


def test_half_requests_take_nothing_from_others() -> None:
    limits = RequestLimits(connections=150, header=60, queue=1, batch=1)  # less than 110 places
    heads = [(b"POST", b"/v1/search"), (b"POST", b"/health"), (b"GET", b"/health"), (b"PUT", b"/none")]
    with behind_socket(serving_of({"slow": Slow()}, limits)) as address, ExitStack() as opened:
        first = connected(address)
        for sent in [*(half(*head) for head in heads), HALF]:
            for _ in range(110):
                opened.enter_context(closing(connected(address, sent)))
            assert httpx.get(f"{address}/health", timeout=10).status_code == 200
            assert httpx.post(f"{address}/v1/search", json={"query": "a"}, timeout=10).status_code == 200
        assert ended(first) == b""


def test_bodies_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.serve.guards._BODIES", 4)
    limits, retriever = RequestLimits(body=1000, header=60), Slow()
    large = HALF + b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n" + b" " * 880
    rest = b'{"query": "a"}'.rjust(20)
    with behind_socket(serving_of({"slow": retriever}, limits)) as address:
        clients = [connected(address, large) for _ in range(7)]
        assert [ended(client)[9:12] for client in clients[:3]] == [b"408"] * 3
        assert httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code == 200
        retriever.gate.clear()
        for client in clients[3:]:
            client.sendall(rest)
        until(lambda: b"503" in connected(address, large + rest).recv(12))  # once these have room
        retriever.gate.set()
        assert [client.recv(12)[9:] for client in clients[3:]] == [b"200"] * 4
        assert httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code == 200


SIZE = 8_000_000


async def large_answers(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        begun.append(scope["path"])
        head = [(b"content-length", b"%d" % SIZE)]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": bytes(SIZE)})
        return
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


begun: list[str] = []


def test_an_answer_has_a_deadline_and_the_next_one_waits_for_it() -> None:
    begun.clear()
    with listening(large_answers, RequestLimits(header=0.5)) as (address, server):
        unread = connected(address, 3 * WHOLE)
        slow, received = connected(address, WHOLE), 0
        while received < SIZE:  # it takes longer than 0.5 s
            received += len(slow.recv(100_000))
            time.sleep(0.02)
        until(lambda: len(server.server_state.connections) < 2)
        assert begun == ["/health"] * 2
        assert 0 < len(ended(unread)) < SIZE
    with listening(large_answers, RequestLimits(header=0.5, seconds=1)) as (address, _):
        slow, received = connected(address, WHOLE), 0
        while part := slow.recv(10_000):
            received += len(part)
            time.sleep(0.05)
        assert received < SIZE


def test_answers_that_wait_unread_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.serve.run._UNREAD", 3 * SIZE)
    with listening(large_answers, RequestLimits(header=600)) as (address, server):
        clients = [connected(address, WHOLE) for _ in range(6)]
        assert all(client.recv(1) for client in clients)
        until(lambda: len(server.server_state.connections) == 3, 30)
        assert all(len(ended(client)) < SIZE for client in clients[:3])
        whole = HALF.replace(b"POST", b"GET") + b"Connection: close\r\n\r\n"
        assert len(ended(connected(address, whole))) > SIZE
        for client in clients:
            client.close()


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
        request = httpx.Request(
            "POST", f"{address}/{path}", json=body, headers={"Accept": "application/json"}
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        client = connected(address, f"POST /{path} HTTP/1.1\r\n{lines}\r\n".encode() + request.content)
        assert looping.wait(5)
        client.close()
        assert over.wait(10)
        over.clear()
        serving.options = serving.options._replace(limits=RequestLimits(seconds=0.2))
        late = httpx.Client(timeout=30).send(request)
        assert "took longer than the 0.2 s" in late.text
        assert path == "mcp" or (late.status_code, late.headers["retry-after"]) == (503, "5")
        assert over.wait(10)
        assert httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code == 200


def test_requests_are_refused_where_no_place_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.serve.options._SPARE", -ServerOptions({}).answer.queue)
    retriever = Slow()
    retriever.gate.clear()
    with (
        behind_socket(serving_of({"slow": retriever}, RequestLimits(queue=2, batch=1))) as address,
        ThreadPoolExecutor(5) as pool,
    ):

        def status() -> int:
            while (code := httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code) == 503:
                pass  # the look below had the place
            return code

        asked = [pool.submit(status) for _ in range(3)]
        until(lambda: "too many requests" in httpx.get(f"{address}/v1/retrievers").text)
        assert httpx.get(f"{address}/health").status_code == 200
        retriever.gate.set()
        assert [one.result() for one in asked] == [200] * 3


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
