"""The page of ``grls judge``."""

from pathlib import Path
from typing import Any

import pytest
from serve_helpers import HOSTILE, listening
from starlette.testclient import TestClient

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Query
from grls.errors import WriteError
from grls.fitting.judging import Judging
from grls.retrieve.bm25 import BM25Options, BM25Retriever
from grls.serve.judge_page import judge_app

QUESTIONS = ("alert right quote injected", "event end", "message")


@pytest.fixture
def judging(tmp_path: Path) -> Judging:
    corpus = Corpus.from_passages(HOSTILE)
    candidates = {"secret-a": BM25Retriever(corpus), "secret-b": BM25Retriever(corpus, BM25Options(0.1, 0.9))}
    return Judging(candidates, tmp_path / "judged", [Query("", text) for text in QUESTIONS], k=4)


def evidence(judging: Judging) -> dict[str, tuple[str, ...]]:
    return {query.text: query.evidence for query in read_split(judging.output, "dev")[0]}


def test_what_is_sent_is_written_and_no_candidate_is_named(judging: Judging) -> None:
    client = TestClient(judge_app(judging), base_url="http://127.0.0.1:8000")
    assert client.get("/").url.path == "/page/judge.html"
    state = client.get("/judge").json()
    ids = [hit["id"] for hit in state["hits"]]
    assert (state["question"], state["judged"], state["left"]) == (QUESTIONS[0], 0, 3)
    assert "secret" not in client.get("/judge").text
    judge = {"act": "judge", "question": QUESTIONS[0], "judged": 0}
    for headers, body, status in (
        ({"Host": "evil.example"}, judge | {"gold": ids[:1]}, 400),
        ({"Content-Type": "text/plain"}, judge | {"gold": ids[:1]}, 422),
        ({}, judge | {"gold": ["unknown"]}, 422),
        ({}, judge | {"gold": [ids[0], ids[0]]}, 422),
        ({}, judge | {"question": QUESTIONS[1]}, 409),
        ({}, {"act": "ask", "question": " "}, 422),
    ):
        assert client.post("/judge", json=body, headers=headers).status_code == status
    assert judging.records == []
    client.post("/judge", json=judge | {"gold": ids[1::-1]})
    assert evidence(judging) == {QUESTIONS[0]: (ids[1], ids[0])}
    assert client.post("/judge", json=judge | {"gold": ids[:1]}).status_code == 409
    assert client.post("/judge", json={"act": "ask", "question": QUESTIONS[0]}).status_code == 422
    state = client.post("/judge", json={"act": "ask", "question": "quote"}).json()
    assert (state["question"], state["left"]) == ("quote", 3)
    client.post("/judge", json={"act": "skip", "question": "quote", "judged": 1})
    judge = {"act": "judge", "question": QUESTIONS[1], "judged": 1}
    state = client.post("/judge", json=judge | {"gold": []}).json()
    assert (state["judged"], state["gold"], state["question"]) == (2, 1, QUESTIONS[2])
    undo = {"act": "undo", "question": QUESTIONS[2], "judged": 2}
    for stale in (undo | {"judged": 1}, undo | {"question": QUESTIONS[1]}):
        assert client.post("/judge", json=stale).status_code == 409
    assert client.post("/judge", json=undo).json()["question"] == QUESTIONS[1]
    assert {row[0] for row in client.get("/judge/table").json()} == {"candidate", "secret-a", "secret-b"}


def test_what_cannot_be_written_is_told_in_words(judging: Judging, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise WriteError("the disk is full; free some space.")

    monkeypatch.setattr(judging, "_write", full)
    client = TestClient(judge_app(judging), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    answer = client.post("/judge", json={"act": "judge", "question": QUESTIONS[0], "judged": 0})
    assert (answer.status_code, answer.json()["detail"]) == (507, "the disk is full; free some space.")


def test_the_page_is_used_by_keys(page: Any, judging: Judging) -> None:
    with listening(judge_app(judging)) as (address, _):
        page.goto(address)
        page.wait_for_selector(".card")
        ids = [hit.id for hit in judging.asked().hits]  # type: ignore[union-attr]
        page.keyboard.press("2")
        page.keyboard.press("1")
        assert page.locator(".gold").all_text_contents()[:2] == ["gold 2", "gold 1"]
        page.keyboard.press("Enter")
        page.wait_for_selector("#state:has-text('1 question judged')")
        assert evidence(judging) == {QUESTIONS[0]: (ids[1], ids[0])}
        page.keyboard.press("n")
        page.wait_for_selector("#state:has-text('2 questions judged')")
        page.keyboard.press("u")
        page.wait_for_selector("#state:has-text('1 question judged, 2 to judge')")
        page.keyboard.press("s")
        page.wait_for_selector(f"#text:has-text('{QUESTIONS[2]}')")
        page.keyboard.press("s")
        page.wait_for_selector("#form:not([hidden])")
        page.keyboard.type("injected")
        page.keyboard.press("Enter")
        page.wait_for_selector("#text:has-text('injected')")
        judging.ask("event")
        page.keyboard.press("s")
        page.wait_for_selector("#problem:has-text('Another window has gone on')")
        page.wait_for_selector("#text:has-text('event')")
        page.click("#table-open")
        page.wait_for_selector("#rows tbody tr >> nth=1")
        for width in (1300, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("main img, main script, main b").count() == 0
