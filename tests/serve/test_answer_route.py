"""POST /v1/answer: each method answers as its command does; limits, cancelling, queue, new versions."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from quoting_model import PASSAGES
from serve_helpers import Slow, client_of, serving_of
from serve_process import until
from starlette.testclient import TestClient

from grls.answer.direct import DirectReader
from grls.answer.dsp.options import CallOptions, ProgramOptions
from grls.answer.writer import TextWriter
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.models.load.language import load_language_model
from grls.retrieve.bm25 import BM25Retriever
from grls.serve.guards import _hashed
from grls.serve.options import AnswerOptions, RequestLimits

WHO = "who owned the mill"
needs_dspy = pytest.mark.skipif(
    find_spec("dspy") is None, reason='needs the extra dsp: pip install "grls[dsp]"'
)


@pytest.fixture(scope="module")
def folder(quotes: Path) -> Path:
    BM25Retriever(Corpus.read(quotes / "data")).save_pretrained(quotes / "bm25")
    return quotes


def served(folder: Path, methods: tuple[Any, ...], retriever: Any = None, **options: Any) -> TestClient:
    limits = RequestLimits(**options.pop("limits", {}))
    answer = AnswerOptions(str(folder / "model"), methods, **options)
    found = {"bm25": retriever or folder / "bm25"}
    return client_of(serving_of(found, limits, _hashed("the administrator"), answer))


@pytest.fixture(scope="module")
def asked(folder: Path) -> Iterator[TestClient]:
    with served(folder, ("riches", "direct", "follow-up"), k=2, tokens=64) as client:
        yield client


def test_riches_quotes_with_sources(asked: TestClient) -> None:
    body = asked.post("/v1/answer", json={"query": WHO}).json()
    assert (body["retriever"], body["version"], body["method"], body["query"]) == ("bm25", 1, "riches", WHO)
    assert (body["answer"], body["ended"]) == ("Orla Finn", True)
    source = {"id": "a", "title": "Mill", "text": PASSAGES[0].text}
    assert body["quotes"] == [
        {"text": "Orla Finn owned it.", "closed": True, "sources": [source], "further": 0}
    ]
    kinds = [(piece["kind"], piece["quote"]) for piece in body["pieces"]]
    assert kinds == [("thought", None), ("quote", 0), ("answer", None)]


def test_direct_reads_what_the_retriever_finds(asked: TestClient, folder: Path) -> None:
    body = asked.post("/v1/answer", json={"query": WHO, "method": "direct", "max_new_tokens": 9}).json()
    model, tokenizer = load_language_model(str(folder / "model"), "cpu")
    corpus = Corpus.read(folder / "data")
    reader = DirectReader(TextWriter(model, tokenizer, 9), BM25Retriever(corpus), corpus, 2)
    (alone,) = reader.answer([Query("q", WHO)])
    assert (body["answer"], body["ended"]) == (alone.answer, alone.ended)
    assert [quote["sources"][0]["id"] for quote in body["quotes"]] == [
        quote.passages[0] for quote in alone.quotes
    ]


def test_direct_under_a_filter(asked: TestClient) -> None:
    body = {"query": "the mill or the barn", "method": "direct", "allow": ["b"], "k": 2}
    body = asked.post("/v1/answer", json=body).json()
    assert [quote["sources"][0]["id"] for quote in body["quotes"]] == ["b"]


def test_follow_ups(asked: TestClient) -> None:
    response = asked.post("/v1/answer", json={"query": WHO, "method": "follow-up"})
    assert (response.status_code, response.json()["method"]) == (200, "follow-up")


@needs_dspy
def test_programs(folder: Path) -> None:
    with served(folder, ("openqa", "conversational"), k=1) as client:
        for body in ({"query": WHO}, {"query": WHO, "method": "conversational", "history": ["hi", "well"]}):
            answer = client.post("/v1/answer", json=body | {"max_new_tokens": 5})
            assert answer.status_code == 200, answer.text
            assert [quote["sources"][0]["id"] for quote in answer.json()["quotes"]] == ["a"]


@needs_dspy
def test_a_served_model_that_fails(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls = CallOptions(endpoint="http://127.0.0.1:9/v1", attempts=1)
    answer = AnswerOptions("none", ("retrieve-then-read",), dsp=ProgramOptions(calls=calls))
    with client_of(serving_of({"bm25": folder / "bm25"}, answer=answer)) as client:
        response = client.post("/v1/answer", json={"query": WHO})
    assert response.status_code == 503
    assert "the language model failed" in response.json()["detail"]
    assert "127.0.0.1" not in response.text
    assert re.search(r"the language model failed: \w+Error$", caplog.text, re.M)
    assert WHO not in caplog.text


def test_without_a_language_model(client: TestClient) -> None:
    response = client.post("/v1/answer", json={"query": WHO})
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert "set answer.model in the file of --server" in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({}, 422, "query"),
        ({"query": WHO, "method": "openqa"}, 422, "answers by riches, direct, follow-up"),
        ({"query": WHO, "method": "magic"}, 422, "method"),
        ({"query": WHO, "where": "year>1"}, 422, "where: riches quotes from the whole corpus"),
        ({"query": WHO, "k": 1}, 422, "k: riches"),
        ({"query": WHO, "history": ["a"]}, 422, "history: only the method conversational"),
        ({"query": WHO, "method": "direct", "k": 101}, 422, "k is at most 100"),
        ({"query": WHO, "max_new_tokens": 65}, 422, "max_new_tokens is at most 64"),
        ({"query": "mill owned " * 360}, 422, "nothing was written for the question: its prompt takes"),
    ],
)
def test_what_cannot_be_answered(asked: TestClient, body: dict[str, Any], status: int, detail: str) -> None:
    response = asked.post("/v1/answer", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert detail in response.json()["detail"]


@pytest.fixture
def held(folder: Path) -> Iterator[Callable[..., tuple[TestClient, Any]]]:
    """Makes clients of a server whose model waits until its gate is set, and counts its steps."""
    opened: list[TestClient] = []

    class Steps:
        def __init__(self) -> None:
            self.count, self.gate, self.began = 0, threading.Event(), threading.Event()

        def __call__(self, *_: object) -> None:
            self.began.set()
            assert self.gate.wait(30)
            self.count += 1
            time.sleep(0.01)

    def make(method: str = "direct", **options: Any) -> tuple[TestClient, Steps]:
        client = served(folder, (method,), **options).__enter__()
        opened.append(client)
        steps = Steps()
        client.app.state.serving.answering._loaded.model.register_forward_pre_hook(steps)  # type: ignore[attr-defined]
        return client, steps

    yield make
    for client in opened:
        client.__exit__()


def in_background(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


def test_a_full_queue(held: Callable[..., Any]) -> None:
    client, steps = held(queue=1)
    first, answers = in_background(lambda: client.post("/v1/answer", json={"query": WHO}))
    assert steps.began.wait(30)
    second, more = in_background(lambda: client.post("/v1/answer", json={"query": "mill"}))
    until(lambda: "grls_answer_queue_questions 1.0" in client.get("/metrics").text)
    refused = client.post("/v1/answer", json={"query": "barn"})
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert client.post("/v1/search", json={"query": "mill"}).status_code == 200  # searches go on
    steps.gate.set()
    first.join()
    second.join()
    assert [one.status_code for one in answers + more] == [200, 200]
    assert "grls_answer_seconds_count 2.0" in client.get("/metrics").text


@pytest.mark.parametrize("method", ["direct", "riches", pytest.param("openqa", marks=needs_dspy)])
def test_a_question_whose_time_is_up_leaves_the_model(method: str, held: Callable[..., Any]) -> None:
    once = ProgramOptions(calls=CallOptions(attempts=1))  # what it writes may be no field of a program
    client, steps = held(method, limits={"seconds": 3}, dsp=once)
    response = client.post("/v1/answer", json={"query": WHO, "max_new_tokens": 200})
    assert response.status_code == 503
    assert "took longer than" in response.json()["detail"]
    steps.gate.set()
    later = client.post("/v1/answer", json={"query": WHO, "max_new_tokens": 1})
    assert "took longer than" not in later.text
    assert steps.count < 20


def test_a_new_version_takes_over_while_an_old_one_answers(folder: Path) -> None:
    slow = Slow()
    with served(folder, ("direct",), slow, k=1) as client:
        state = client.app.state.serving  # type: ignore[attr-defined]
        version = state.find(None).version
        version.worker.close()  # as a reload does
        body = client.post("/v1/answer", json={"query": "b"}).json()
    assert [quote["sources"][0]["id"] for quote in body["quotes"]] == ["b"]


def test_a_reload_makes_new_keys(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "bm25"
    BM25Retriever(Corpus.from_passages(PASSAGES[1:])).save_pretrained(place)
    with served(folder, ("riches",), place) as client:
        token = {"Authorization": "Bearer the administrator"}
        body = client.post("/v1/answer", json={"query": WHO}).json()
        assert "a" not in [source["id"] for quote in body["quotes"] for source in quote["sources"]]
        BM25Retriever(Corpus.from_passages(PASSAGES)).save_pretrained(place)
        assert client.post("/admin/reload", json={}, headers=token).json()["version"] == 2
        body = client.post("/v1/answer", json={"query": WHO}).json()
        assert (body["version"], body["quotes"][0]["sources"][0]["id"]) == (2, "a")
        BM25Retriever(Corpus.from_passages([Passage("x", "« marked »")])).save_pretrained(place)
        refused = client.post("/admin/reload", json={}, headers=token)
        assert (refused.status_code, "version 2 goes on" in refused.json()["detail"]) == (422, True)
        assert client.post("/v1/answer", json={"query": WHO}).json()["answer"] == "Orla Finn"
