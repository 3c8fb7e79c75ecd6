"""POST /v1/explain: where gold passages stand, and why."""

from pathlib import Path

import pytest
from serve_helpers import HOSTILE
from starlette.testclient import TestClient

import grls


@pytest.mark.parametrize("name", ["bm25", "generative", "hops"])
def test_an_explanation_is_that_of_the_library(client: TestClient, kinds: Path, name: str) -> None:
    body = {"query": "is the otter calm ?", "gold": ["otter-calm"], "retriever": name}
    response = client.post("/v1/explain", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    expected = grls.load(kinds / name, device="cpu").explain("is the otter calm ?", ["otter-calm"])
    assert (answer["retriever"], answer["version"]) == (name, 1)
    assert [one["gold"] for one in answer["passages"]] == [one.gold for one in expected]
    for one, other in zip(answer["passages"], expected, strict=True):
        assert (one["hop"], one["rank"], one["above"]) == (other.hop, other.rank, list(other.above))
        assert one["report"].splitlines()[0] == str(other).splitlines()[0]


def test_wrong_requests(client: TestClient) -> None:
    for body in (
        {"query": "a"},
        {"query": "a", "gold": []},
        {"query": " ", "gold": ["otter-calm"]},
        {"query": "a", "gold": ["no such passage"]},
    ):
        response = client.post("/v1/explain", json=body)
        assert response.status_code == 422, body
        assert response.headers["content-type"] == "application/problem+json"


def test_hostile_passages(client: TestClient) -> None:
    body = {"query": "alert", "gold": [HOSTILE[0].id], "retriever": "hostile"}
    (one,) = client.post("/v1/explain", json=body).json()["passages"]
    assert one["gold"] == HOSTILE[0].id
