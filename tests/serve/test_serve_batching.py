"""Requests at the same time: batches, cancellation, full queues, slow clients, the end of a server."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from encoder_models import tiny_colbert, tiny_splade
from serve_helpers import LETTERS, Slow, serving_of
from serve_process import until
from starlette.testclient import TestClient

import grls
from grls.api.streaming import StreamedHop
from grls.data.corpus import Corpus
from grls.data.filters import Filter, Only
from grls.data.types import Hit, Passage
from grls.errors import DataError
from grls.io.timing import PARTS, PartCounts
from grls.retrieve.base import Retriever
from grls.retrieve.hits import search_hits
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.multi_vector import LateTexts, MultiVectorRetriever
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.serve.options import RequestLimits
from grls.serve.worker import BatchKey, CallJob, Job, JoiningJobs, RefusalError, SearchJob, StreamJob, Worker

Serve = Callable[..., tuple[TestClient, Slow]]


def mixed(count: int) -> list[dict[str, Any]]:
    """Requests of all sorts: retrievers, k, filters, hops, one query and several."""
    rng = random.Random(0)
    texts = [
        f"is the {animal} {trait} ?" for animal in ("otter", "lynx", "heron") for trait in ("calm", "quick")
    ]
    bodies = []
    for _ in range(count):
        body: dict[str, Any] = {"retriever": rng.choice(["bm25", "generative", "hops"])}
        body["k"] = rng.choice([1, 3, 5])
        body["query"] = rng.choice([rng.choice(texts), rng.sample(texts, 3)])
        if rng.random() < 0.2:
            body["allow"] = ["p1", "p2", "p3"]
        if rng.random() < 0.1:
            body["hops"] = {"steps": "fixed", "max": 2}
        bodies.append(body)
    return bodies


def offline(searchers: dict[str, Any], body: dict[str, Any]) -> list[list[tuple[str, float]]]:
    retriever = searchers[body["retriever"]].retriever
    if "hops" in body:
        retriever = hop_by_hop(retriever, HopOptions(**body["hops"]))
    queries = [body["query"]] if isinstance(body["query"], str) else body["query"]
    return [
        [(hit.id, hit.score) for hit in search_hits(retriever, [one], body["k"], body.get("allow"))[0]]
        for one in queries
    ]


def test_a_hundred_requests_at_once_get_the_offline_results(kinds: Path, socket_server: Any) -> None:
    names = ("bm25", "generative", "hops")
    serving = serving_of({name: kinds / name for name in names})
    ids = [passage.id for passage in grls.load(kinds / "bm25").corpus][:3]
    bodies = [body | ({"allow": ids} if "allow" in body else {}) for body in mixed(100)]

    async def ask(address: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(client.post("/v1/search", json=body) for body in bodies))

    with socket_server(serving) as address:
        answers = asyncio.run(ask(address))
        sizes = serving.metrics.text().decode()
    searchers = {name: grls.load(kinds / name, device="cpu") for name in names}
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status_code == 200, answer.text
        found = [[(hit["id"], hit["score"]) for hit in one["hits"]] for one in answer.json()["results"]]
        expected = offline(searchers, body)
        assert [[i for i, _ in hits] for hits in found] == [[i for i, _ in hits] for hits in expected], body
        for one, other in zip(found, expected, strict=True):
            assert [s for _, s in one] == pytest.approx([s for _, s in other], abs=1e-5)
    batches = sum(
        float(line.split()[-1]) for line in sizes.splitlines() if line.startswith("grls_batch_queries_count")
    )
    assert batches < 60  # they were answered together


def test_a_full_queue_refuses_with_the_time_to_wait(slow: Serve) -> None:
    client, retriever = slow(queue=2)
    retriever.gate.clear()
    queue = client.app.state.serving.retrievers["slow"].version.worker  # type: ignore[attr-defined]
    ask = lambda: client.post("/v1/search", json={"query": "a"})  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    assert retriever.began.wait(5)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(queue) == 2)
    response = ask()
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert "queue" in response.json()["detail"]
    retriever.gate.set()
    for thread in threads:
        thread.join()
    assert ask().status_code == 200


def test_one_wrong_request_does_not_disturb_its_batch(socket_server: Any) -> None:
    retriever = Slow()
    retriever.gate.clear()
    serving = serving_of({"slow": retriever})
    queue = serving.retrievers["slow"].version.worker

    async def ask(address: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            first = asyncio.create_task(client.post("/v1/search", json={"query": "a"}))
            assert await asyncio.to_thread(retriever.began.wait, 5)
            asked = [client.post("/v1/search", json={"query": text}) for text in ("b", "zzz", "boom", "c")]
            later = asyncio.gather(*asked)
            await asyncio.to_thread(until, lambda: len(queue) == 4)
            retriever.gate.set()
            return [await first, *await later]

    with socket_server(serving) as address:
        answers = asyncio.run(ask(address))
    assert [answer.status_code for answer in answers] == [200, 200, 422, 500, 200]
    assert sorted(retriever.batches[1][0]) == ["b", "boom", "c", "zzz"]


def gone(address: str, body: bytes, path: str = "/v1/search", once: Callable[[], bool] | None = None) -> None:
    """Send a request and hang up: once a condition holds, or once the response begins."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as one:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        one.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if once is None:
            assert one.recv(1)
        else:
            until(once)


def test_a_client_that_goes_leaves_the_queue_at_once(socket_server: Any) -> None:
    retriever = Slow()
    retriever.gate.clear()
    serving = serving_of({"slow": retriever}, RequestLimits(queue=1))
    queue = serving.retrievers["slow"].version.worker
    with socket_server(serving) as address:
        first = threading.Thread(
            target=httpx.post, args=(f"{address}/v1/search",), kwargs={"json": {"query": "a"}}
        )
        first.start()
        assert retriever.began.wait(5)
        gone(address, b'{"query": "b"}', once=lambda: len(queue) == 1)
        until(lambda: len(queue) == 0)
        retriever.gate.set()
        assert httpx.post(f"{address}/v1/search", json={"query": "c"}).status_code == 200
        first.join()
        text = httpx.get(f"{address}/metrics").text
    assert [asked for asked, _ in retriever.batches] == [["a"], ["c"]]
    assert 'status="499"' in text


def test_a_stream_that_is_cancelled_makes_no_more_hops(socket_server: Any) -> None:
    retriever = Slow(0.3)
    serving = serving_of({"slow": retriever})
    with socket_server(serving) as address:
        gone(address, b'{"query": "a"}', "/v1/stream")
        time.sleep(1.0)
        assert len(retriever.batches) <= 2
        assert httpx.post(f"{address}/v1/search", json={"query": "c"}).status_code == 200


def test_a_stream_done_alone_ends_once_its_client_has_gone() -> None:
    retriever, hops = Slow(), list[StreamedHop]()

    def emit(hop: StreamedHop) -> None:
        hops.append(hop)
        job.future.cancel()

    job = StreamJob(retriever, "a", None, emit)  # type: ignore[arg-type]
    job.alone(Worker("test", 10, 10, lambda *_: None))
    assert [hop.number for hop in hops] == [1]
    assert len(retriever.batches) == 2


def test_the_first_hop_is_sent_before_the_second_is_made(socket_server: Any) -> None:
    retriever = Slow(0.3)
    with (
        socket_server(serving_of({"slow": retriever})) as address,
        httpx.stream("POST", f"{address}/v1/stream", json={"query": "a"}) as response,
    ):
        first = next(response.iter_text())
        assert first.count("event: hop") == 1
        assert len(retriever.batches) <= 2


def test_clients_that_read_or_write_slowly_hold_nobody_up(socket_server: Any) -> None:
    big = "x" * 200_000
    retriever = Slow()
    retriever.corpus = type(LETTERS).from_passages([Passage(name, big) for name in "abcdef"])
    with socket_server(serving_of({"slow": retriever}, RequestLimits(seconds=1.0))) as address:
        host, port = address.removeprefix("http://").split(":")
        held = []
        for number in range(20):
            one = socket.create_connection((host, int(port)))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            body = b'{"query": ["a","b","c","d"]}'
            head = f"POST /v1/{'search' if number % 2 else 'stream'} HTTP/1.1\r\nHost: x\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            one.sendall(head.encode() + (body if number % 4 else body[:5]))  # each fourth never ends its body
            held.append(one)
        halves = b"", b"POST", b"POST /v1/search HTTP/1.1\r\nHo", b"\x16\x03\x01\x02", b"GET / HTTP/9\r\n\r\n"
        for part in halves:
            held.append(socket.create_connection((host, int(port))))  # half a head, none, or no HTTP
            held[-1].sendall(part)
        for _ in range(5):
            assert httpx.post(f"{address}/v1/search", json={"query": "a"}, timeout=30).status_code == 200
        held[0].settimeout(30)
        assert held[0].recv(100).startswith(b"HTTP/1.1 408")
        for one in held:
            one.close()


def test_what_runs_is_finished_at_the_end(socket_server: Any) -> None:
    retriever = Slow()
    retriever.gate.clear()
    serving = serving_of({"slow": retriever})
    queue = serving.retrievers["slow"].version.worker
    answers: list[int] = []

    def ask(address: str, text: str) -> None:
        answers.append(httpx.post(f"{address}/v1/search", json={"query": text}).status_code)

    with socket_server(serving) as address:
        threads = [threading.Thread(target=ask, args=(address, text)) for text in "ab"]
        threads[0].start()
        assert retriever.began.wait(5)
        threads[1].start()
        until(lambda: len(queue) == 1)
        threading.Timer(0.3, retriever.gate.set).start()
    for thread in threads:
        thread.join()
    assert answers == [200, 200]


def test_nothing_that_a_job_raises_ends_the_thread() -> None:
    worker = Worker("test", 10, 10, lambda *_: None)

    def dies() -> None:
        raise SystemExit

    hopeless, after = CallJob(dies), CallJob(lambda: 7)
    worker.submit(hopeless)
    worker.submit(after)
    with pytest.raises(RuntimeError, match="SystemExit"):
        hopeless.future.result(5)
    assert after.future.result(5) == 7
    worker.close()
    with pytest.raises(RefusalError, match="shutting down"):
        worker.submit(CallJob(lambda: 7))


@pytest.mark.parametrize("member", ["bm25", "generative"])
def test_readers_of_answers_get_the_pooled_chains_and_searches_the_best_one(kinds: Path, member: str) -> None:
    single = grls.load(kinds / member, device="cpu").retriever
    retriever = hop_by_hop(single, HopOptions("fixed", max=2, chains=2, branch=2))
    allowed = Only(frozenset(single.corpus.ids(range(5))))
    worker = Worker("test", 50, 50, lambda *_: None)
    jobs = [
        SearchJob(["is the otter quick ?"], BatchKey(retriever, 4, allowed, pooled))
        for pooled in (True, False)
    ]
    for job in jobs:
        worker.submit(job)
    (pooled,), (chain,) = (job.future.result(60) for job in jobs)
    worker.close()
    (expected,) = retriever.retrieve(["is the otter quick ?"], 4, allowed)
    assert [hit.id for hit in pooled] == [hit.id for hit in expected]
    assert [(hit.id, hit.hop) for hit in chain] == [(expected[0].id, 1), (expected[1].id, 2)]
    assert len(pooled) > 2


class Left(Future[Any]):
    """The client goes when the search has been looked after twice."""

    looked = 0

    def done(self) -> bool:
        self.looked += 1
        if self.looked == 3:
            self.cancel()
        return super().done()


@pytest.mark.parametrize(
    "kind", ["bm25", "dense", "fusion", "rescored", "chains", "ranked", "sparse", "multi-vector"]
)
def test_a_search_ends_once_nobody_waits_for_it(kinds: Path, tmp_path: Path, kind: str) -> None:
    retriever: Retriever
    if kind == "sparse":
        sparse = SparseTexts.load(str(tiny_splade(tmp_path)), device="cpu")
        retriever = SparseRetriever.assemble(sparse, Corpus.read(kinds / "data"))
    elif kind == "multi-vector":
        late = LateTexts.load(str(tiny_colbert(tmp_path)), device="cpu")
        retriever = MultiVectorRetriever.assemble(late, Corpus.read(kinds / "data"))
    else:
        retriever = grls.load(kinds / kind, device="cpu").retriever
    found: list[Any] = []

    class Leaving(SearchJob):
        def hits(self, queries: Sequence[str]) -> list[list[Hit]]:
            found.append(super().hits(queries))
            return found[-1]

    queries = ["is the otter calm ?", "is the lynx quick ?", "is the heron calm ?", "is the wolf quick ?"]
    job, after = (Leaving(queries, BatchKey(retriever, k, None)) for k in (2, 3))
    job.future = Left()
    worker = Worker("test", 10, 10, lambda *_: None)
    worker.submit(job)
    worker.submit(after)
    assert after.future.result(30) == found[0]
    assert len(found) == 1
    worker.close()


def test_requests_join_a_search_that_runs(kinds: Path) -> None:
    """A generator's search takes what comes in meanwhile: of any k within its beams, and of any filter."""
    retriever = grls.load(kinds / "generative", device="cpu").retriever
    texts = [f"is the {animal} quick ?" for animal in ("otter", "lynx", "heron", "wolf", "crane", "toad")]
    asked: list[tuple[list[str], int, Filter | None]]
    asked = [([text], 1 + n % 5, None) for n, text in enumerate(texts)]
    asked += [(texts[:4], 3, Only(frozenset(["otter-calm", "otter-quick"]))), (["word " * 400], 3, None)]
    batches: list[int] = []
    spent = PartCounts()
    worker = Worker("test", 50, 50, lambda queries, *_: batches.append(queries), spent.add)
    jobs = [SearchJob(texts, BatchKey(retriever, k, allow)) for texts, k, allow in asked]

    class First(SearchJob):
        """Lets the others come in once its search runs."""

        def work(self, batch: Sequence[Any], queue: Worker) -> bool:
            for job in jobs:
                worker.submit(job)
            return super().work(batch, queue)

    first = First(texts[:1], BatchKey(retriever, 2, None))
    worker.submit(first)
    for job, (queries, k, allow) in zip(jobs[:-1], asked[:-1], strict=True):
        for hits, expected in zip(job.future.result(30), retriever.retrieve(queries, k, allow), strict=True):
            assert [hit.id for hit in hits] == [hit.id for hit in expected]
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)
    with pytest.raises(DataError, match="tokens"):
        jobs[-1].future.result(30)
    worker.close()
    assert max(batches) > 8
    assert sum(batches) >= 12
    assert all(spent[part].seconds > 0 for part in PARTS)
    assert spent["encoder"].tokens > 12


def test_a_search_forgets_the_requests_that_are_done(kinds: Path) -> None:
    """Under load a search that others join never ends, and nothing may grow with it."""
    retriever = grls.load(kinds / "generative", device="cpu").retriever
    first, *others = (SearchJob(["is it ?"], BatchKey(retriever, 2, None)) for _ in range(20))
    left = iter(others)

    class Endless:
        """A queue from which one request joins at a time."""

        def joining(self, key: object) -> int:
            return 1

        def join(self, key: object, queries: int) -> list[SearchJob]:
            return [next(left)] if queries > 0 else []

        def began(self, queries: int) -> None:
            assert queries == 1

    source = JoiningJobs([first], Endless())
    for number in range(19):
        ((_, owner),) = source.take(1)
        if number % 2:
            owner.job.future.cancel()
        else:
            source.answer(owner, [])
    assert len(source._results) <= 1


def test_a_search_that_fails_is_made_again_for_each_request_alone(
    kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = grls.load(kinds / "generative", device="cpu").retriever
    broken, answer = iter([True]), JoiningJobs.answer

    def failing(*arguments: Any) -> None:
        if next(broken, False):
            raise RuntimeError("in the middle")
        answer(*arguments)

    monkeypatch.setattr(JoiningJobs, "answer", failing)
    worker = Worker("test", 50, 50, lambda *_: None)
    jobs = [SearchJob([f"is the {name} calm ?"], BatchKey(retriever, 2, None)) for name in ("otter", "lynx")]
    for job in jobs:
        worker.submit(job)
    for job in jobs:
        (expected,) = retriever.retrieve(job.queries, 2)
        assert [hit.id for hit in job.future.result(30)[0]] == [hit.id for hit in expected]
    worker.close()


class Recorded(Job):
    """A job that goes with all others; the sizes of the batches are recorded."""

    def __init__(self, batches: list[int], gate: threading.Event):
        super().__init__(key="all")
        self._batches, self._gate = batches, gate

    def work(self, batch: Sequence[Any], queue: Worker) -> bool:
        self._batches.append(len(batch))
        assert self._gate.wait(30)
        for job in batch:
            job.future.set_result(None)
        return False


def test_clients_that_were_answered_together_are_searched_together_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They ask one by one, a moment after the answer; the first one does not go alone."""
    monkeypatch.setattr("grls.serve.worker._MOST", 30.0)
    monkeypatch.setattr("grls.serve.worker._SHARE", 1e9)
    worker, batches, gate = Worker("one", 64, 64, lambda *_: None), list[int](), threading.Event()
    ended = threading.Semaphore(0)

    def asks(left: int) -> None:
        if left == 0:
            ended.release()
            return
        job = Recorded(batches, gate)
        job.future.add_done_callback(lambda _: threading.Timer(0.02, asks, [left - 1]).start())
        worker.submit(job)

    asks(4)
    until(lambda: batches == [1])  # it found an idle thread
    for _ in range(3):
        asks(3)
    gate.set()
    assert all(ended.acquire(timeout=30) for _ in range(4))
    assert batches == [1, 4, 4, 4]
    worker.close()


def test_clients_that_do_not_come_back_are_awaited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.serve.worker._MOST", 0.05)
    monkeypatch.setattr("grls.serve.worker._SHARE", 1e9)
    worker, batches, gate = Worker("one", 64, 64, lambda *_: None), list[int](), threading.Event()
    jobs = [Recorded(batches, gate) for _ in range(5)]
    for job in jobs[:4]:
        worker.submit(job)
    gate.set()
    jobs[3].future.result(30)
    worker.submit(jobs[4])
    jobs[4].future.result(30)
    assert worker._present == 1
    worker.close()
