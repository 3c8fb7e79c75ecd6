"""POST /v1/stream: hops as server-sent events."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from serve_helpers import HOSTILE, Slow, events
from starlette.testclient import TestClient

import grls

Serve = Callable[..., tuple[TestClient, Slow]]


@pytest.mark.parametrize("name", ["bm25", "generative", "hops"])
def test_the_hops_are_those_of_the_library(client: TestClient, kinds: Path, name: str) -> None:
    response = client.post("/v1/stream", json={"query": "is the otter calm ?", "retriever": name})
    assert response.headers["content-type"].startswith("text/event-stream")
    *hops, end = events(response.text)
    expected = list(grls.load(kinds / name, device="cpu").stream("is the otter calm ?"))
    assert end[0] == "end"
    assert [kind for kind, _ in hops] == ["hop"] * len(expected)
    for (_, data), hop in zip(hops, expected, strict=True):
        sent = json.loads(data)
        assert (sent["number"], sent["last"], sent["done"]) == (hop.number, hop.last, hop.done)
        assert sent["chain"] == [hit.id for hit in hop.chain]
        assert sent["scores"] == pytest.approx([hit.score for hit in hop.chain])
        assert sent["score"] == pytest.approx(hop.score)
        assert (None if hop.hit is None else hop.hit.text) == (sent["hit"] or {}).get("text")


def test_errors_before_the_first_hop_have_their_status(client: TestClient, slow: Serve) -> None:
    for body, status in (
        ({"query": "a", "retriever": "no"}, 404),
        ({"query": "a", "where": "="}, 422),
        ({"query": "  "}, 422),
        ({"query": "word " * 700, "retriever": "generative"}, 422),
    ):
        response = client.post("/v1/stream", json=body)
        assert response.status_code == status, body
        assert response.headers["content-type"] == "application/problem+json"
    patient, _ = slow()
    assert patient.post("/v1/stream", json={"query": "boom"}).status_code == 500


def test_an_error_after_the_first_hop_is_an_event(slow: Serve) -> None:
    client, _ = slow()
    first, error = events(client.post("/v1/stream", json={"query": "late"}).text)
    assert first[0] == "hop"
    assert error[0] == "problem"
    assert json.loads(error[1])["detail"] == "no second hop"


def test_a_search_comes_in_between_two_hops(slow: Serve) -> None:
    client, retriever = slow(0.1)
    thread = threading.Thread(target=client.post, args=("/v1/stream",), kwargs={"json": {"query": "a"}})
    thread.start()
    assert retriever.began.wait(5)
    assert client.post("/v1/search", json={"query": "b"}).status_code == 200
    thread.join()
    assert [what for what, _ in retriever.batches][1] == ["b"]


def test_hostile_texts_cannot_end_an_event(client: TestClient) -> None:
    for passage in HOSTILE:
        body = {
            "query": "alert right quote injected end event",
            "retriever": "hostile",
            "allow": [passage.id],
        }
        (name, data), end = events(client.post("/v1/stream", json=body).text)
        assert (name, end[0]) == ("hop", "end")
        hit = json.loads(data)["hit"]
        assert (hit["id"], hit["title"], hit["text"]) == (passage.id, passage.title, passage.text)
