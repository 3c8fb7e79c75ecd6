"""The front process: a worker process that dies loses no request."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_front import CHILD, Running, found, until
from serve_helpers import events

from grls.errors import ConfigError
from grls.serve.front import supervisor as supervising
from grls.serve.front.connection import ResponseHead
from grls.serve.front.reply import Reply
from grls.serve.front.run import front_server, serve_front
from grls.serve.front.supervisor import Supervisor, WorkerStartError
from grls.serve.front.task import WorkerTask
from grls.serve.options import OPEN_ACCESS, AccessOptions, RequestLimits


@pytest.fixture(scope="module", autouse=True)
def _no_pause() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervising, "_PAUSE", 0.01)
        yield


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    opened: list[Running] = []

    def make(access: AccessOptions = OPEN_ACCESS, starts: int = 100, **limits: Any) -> Running:
        folder = tmp_path / "deadly"
        folder.mkdir()
        opened.append(Running(folder, RequestLimits(**limits), access, starts))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("front") / "deadly"
    folder.mkdir()
    one = Running(folder, starts=100)
    yield one
    one.close()


@pytest.fixture
def one(running: Running) -> Running:
    """A server with the usual limits that several tests share; its retriever has no orders."""
    for file in running.folder.iterdir():
        file.unlink()
    return running


RESTARTS, REPEATED = "grls_worker_restarts_total", "grls_repeated_requests_total"
WAITING = 'grls_queue_requests{retriever="deadly"}'


def test_requests_of_a_worker_process_that_is_killed_are_answered(one: Running) -> None:
    before, version = [one.metric(name) for name in (RESTARTS, REPEATED)], one.post("e").json()["version"]
    first = one.ask("wait")
    one.until_searching()
    waiting = [one.ask(name) for name in "abcd"]
    until(lambda: one.metric(WAITING) == 4)
    one.kill()
    one.mark("go")
    assert [found(answer.result()) for answer in [first, *waiting]] == [[name] for name in "aabcd"]
    assert [one.metric(name) for name in (RESTARTS, REPEATED)] == [before[0] + 1, before[1] + 5]
    assert found(one.post("e")) == ["e"]
    assert one.post("e").json()["version"] == version + 1  # the folder was read again


def test_a_request_that_kills_is_refused_and_the_others_are_answered(one: Running) -> None:
    first = one.ask("wait")
    one.until_searching()
    asked = [one.ask(text) for text in ("a", "die", "b", "c")]
    until(lambda: one.metric(WAITING) == 4)
    one.mark("go")
    answers = [answer.result() for answer in asked]
    bad = answers.pop(1)
    assert (bad.status_code, bad.headers["content-type"]) == (503, "application/problem+json")
    assert "has died 3 times while it had this request" in bad.json()["detail"]
    assert [found(answer) for answer in [first.result(), *answers]] == [["a"], ["a"], ["b"], ["c"]]
    assert one.searched().count("die") == 3


def test_a_stream_goes_on_where_it_was(one: Running) -> None:
    whole = one.post("x", "/v1/stream").text
    again = one.stream("x")
    assert not (one.folder / "deadly").exists()
    assert [name for name, _ in events(again)] == ["hop", "hop", "hop", "end"]
    assert events(again)[:3] == events(whole)[:3]


def test_a_stream_that_has_become_another_one_ends_with_a_problem(one: Running) -> None:
    (name, _), (last, said) = events(one.stream("changed"))
    assert (name, last) == ("hop", "problem")
    assert "no longer the same" in json.loads(said)["detail"]


def test_a_client_that_goes_frees_its_place(one: Running) -> None:
    first = one.ask("wait")
    one.until_searching()
    with socket.create_connection(("127.0.0.1", int(one.address.rpartition(":")[2]))) as raw:
        body = b'{"query": "b"}'
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        raw.sendall(b"POST /v1/search HTTP/1.1\r\n" + head.encode() + body)
        until(lambda: one.metric(WAITING) == 1)
    until(lambda: one.metric(WAITING) == 0)
    one.mark("go")
    assert found(first.result()) == ["a"]
    assert found(one.post("c")) == ["c"]
    assert one.searched() == ["wait", "c"]
    assert one.metric('grls_requests_total{route="/v1/search",status="499"}') == 1


def test_versions_are_counted_on(one: Running) -> None:
    assert one.client.post("/admin/reload", json={}).json()["version"] == 7
    one.kill()
    assert one.post("a").json()["version"] == 8


def test_a_request_and_a_stream_wait_within_their_time(front: Callable[..., Running]) -> None:
    one = front(seconds=1.0)
    one.mark("broken")
    (name, _), (last, said) = events(one.stream("x"))
    assert (name, last) == ("hop", "problem")
    assert json.loads(said)["status"] == 503
    answer = one.post("a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    one.unmark("broken")


def test_requests_wait_while_there_is_no_worker_process(
    front: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = front(queue=2)
    one.mark("broken")
    monkeypatch.setattr(supervising, "_PAUSE", 0.5)
    one.kill()
    assert one.client.get("/health").json() == {
        "status": "starting",
        "retrievers": [{"retriever": "deadly", "version": 1, "passages": 6}],
    }
    ready = one.client.get("/ready")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "5")
    waiting = [one.ask("a"), one.ask("b")]
    time.sleep(0.1)
    full = one.post("c")
    assert (full.status_code, "queue is full" in full.text) == (503, True)
    assert "retry-after" in full.headers
    one.unmark("broken")
    assert [found(answer.result()) for answer in waiting] == [["a"], ["b"]]
    assert one.client.get("/ready").status_code == 200

    first = one.ask("wait")
    one.until_searching()
    waiting = [one.ask("a"), one.ask("b")]
    until(lambda: one.metric(WAITING) == 2)
    accepted = {"X-Grls-Accepted": "1"}  # what the processes say to each other is not taken from clients
    full = one.client.post("/v1/search", json={"query": "c"}, headers=accepted)
    assert (full.status_code, "queue is full" in full.text) == (503, True)
    one.mark("go")
    assert [found(answer.result()) for answer in (first, *waiting)] == [["a"], ["a"], ["b"]]


def test_worker_processes_that_die_again_and_again_end_the_server(front: Callable[..., Running]) -> None:
    one = front(starts=3)
    one.mark("weak")
    one.kill()
    answer = one.post("a")
    assert answer.status_code == 503
    one.thread.join(30)
    assert not one.thread.is_alive()
    assert "3 worker processes in a row" in str(one.supervisor.failure)
    assert "was killed by SIGKILL (perhaps for lack of memory)" in str(one.supervisor.failure)


def test_what_a_request_must_pass_is_checked_without_the_worker_process(
    front: Callable[..., Running], tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("a-key-of-16-characters\n")
    one = front(AccessOptions(keys=str(tmp_path / "keys"), rate=2), body=64)
    one.mark("broken")
    one.kill()
    assert one.post("a").status_code == 401
    assert one.post("a" * 100).status_code == 401
    one.client.headers["Authorization"] = "Bearer a-key-of-16-characters"
    assert one.post("a" * 100).status_code == 413
    assert one.client.get("/health", headers={"Host": "evil.example"}).status_code == 400
    one.unmark("broken")
    assert found(one.post("a")) == ["a"]
    assert one.post("a").status_code == 429


def test_a_worker_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    server, supervisor = front_server(WorkerTask((str(tmp_path),)), "127.0.0.1", 0, child=CHILD)
    with pytest.raises(WorkerStartError, match="the folder is broken"):
        asyncio.run(serve_front(server, supervisor))
    assert not Path(supervisor._folder).exists()


def test_a_folder_of_temporary_files_with_a_long_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("long" * 30)
    place.mkdir()
    monkeypatch.setattr(supervising.tempfile, "tempdir", str(place))
    with pytest.raises(ConfigError, match="TMPDIR"):
        asyncio.run(Supervisor(WorkerTask(("one",)), 1, None, CHILD).start())  # type: ignore[arg-type]
    assert list(place.iterdir()) == []


def test_an_endless_stream_is_handed_on_and_not_kept() -> None:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def parts(*contents: bytes) -> AsyncIterator[bytes]:
        for content in contents:
            yield content

    async def twice() -> Reply:
        reply = Reply(send, endless=True)
        await reply.stream(ResponseHead(200, []), parts(b"data: 1\n\ndata: 2\n\n"))
        await reply.stream(ResponseHead(200, []), parts(b"data: 3\n\n"))
        return reply

    assert asyncio.run(twice())._events == []
    assert [content for content in sent if content] == [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
