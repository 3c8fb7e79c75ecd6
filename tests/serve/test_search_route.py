"""POST /v1/search: results, and every way to ask wrongly."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serve_helpers import HOSTILE, LETTERS, Slow, client_of, serving_of
from starlette.testclient import TestClient

import grls
from grls.api.streaming import StreamedHop
from grls.retrieve.hops.options import UNLABELLED, HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.serve.bodies import HopBody, HopsBody, SearchBody
from grls.serve.options import RequestLimits
from grls.serve.serving import hop_options, retrieval_of

JSON = {"Content-Type": "application/json"}


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["title"]
    return body


@pytest.mark.parametrize("name", ["bm25", "generative", "hops"])
def test_a_search_is_that_of_the_library(client: TestClient, kinds: Path, name: str) -> None:
    texts = ["is the otter calm ?", "is the lynx quick ?"]
    answer = client.post("/v1/search", json={"query": texts, "k": 3, "retriever": name}).json()
    expected = grls.load(kinds / name, device="cpu").search(texts, 3)
    assert (answer["retriever"], answer["version"]) == (name, 1)
    assert [one["query"] for one in answer["results"]] == texts
    for one, hits in zip(answer["results"], expected, strict=True):
        assert [(h["id"], h["text"], h["title"]) for h in one["hits"]] == [
            (h.id, h.text, h.title) for h in hits
        ]
        assert [h["score"] for h in one["hits"]] == pytest.approx([h.score for h in hits])


def test_filters_and_allowed_ids(client: TestClient) -> None:
    body = {"query": "right quote alert", "retriever": "hostile"}
    every = client.post("/v1/search", json=body).json()["results"][0]["hits"]
    assert len(every) == 3
    late = client.post("/v1/search", json=body | {"where": "year>=2004"}).json()["results"][0]["hits"]
    assert [hit["id"] for hit in late] == [HOSTILE[4].id]
    ids = [HOSTILE[1].id]
    found = client.post("/v1/search", json=body | {"allow": ids}).json()["results"][0]["hits"]
    assert [hit["id"] for hit in found] == ids


def test_hops_of_a_request(client: TestClient, kinds: Path) -> None:
    hops = {"steps": "fixed", "max": 2}
    answer = client.post("/v1/search", json={"query": "otter", "hops": hops, "k": 4}).json()
    retriever = hop_by_hop(grls.load(kinds / "bm25").retriever, HopOptions(steps="fixed", max=2))
    ((chain, *_),) = retriever.retrieve_chains(["otter"])  # type: ignore[attr-defined]
    found = answer["results"][0]["hits"]
    assert [(hit["id"], hit["hop"]) for hit in found] == [(chain.hits[0].id, 1), (chain.hits[1].id, 2)]
    ranking = client.post("/v1/search", json={"query": "otter", "k": 4}).json()["results"][0]["hits"]
    assert {hit["hop"] for hit in ranking} == {None}
    single = client.post(
        "/v1/search", json={"query": "otter", "hops": {"steps": "single"}, "retriever": "hops"}
    )
    assert single.status_code == 200


def test_a_limit_of_hops_keeps_what_a_retriever_takes_without_a_number(client: TestClient) -> None:
    """Two hops, the second of less weight, where nothing ends them; a limit of three had made them three."""
    state, hops = client.app.state.serving, HopsBody(steps="ranked")  # type: ignore[attr-defined]
    taken = {}
    for most, name in ((3, "bm25"), (1, "bm25"), (3, "generative"), (9, "generative")):
        body, limited = SearchBody(query="otter", retriever=name), copy.copy(state)
        limited.options = state.options._replace(limits=RequestLimits(hops=most))
        made = retrieval_of(limited, body, hops)[1].hops  # type: ignore[attr-defined]
        taken[most, name] = made.count, made.onward == UNLABELLED
    assert taken == {
        (3, "bm25"): (2, True), (1, "bm25"): (1, False),
        (3, "generative"): (3, False), (9, "generative"): (4, False),
    }  # fmt: skip


def test_hops_of_a_request_keep_the_tuned_options_of_the_folder(client: TestClient) -> None:
    """``steps`` and ``max`` had replaced the temperature, the biases and all that ``grls tune`` finds."""
    stored = HopOptions("ranked", max=4, temperature=0.5, evidence=32, onward=(0.1,) * 7)
    limits = RequestLimits(hops=3)
    assert hop_options(HopsBody(steps="ranked", max=2), limits, stored) == replace(stored, max=2)
    assert hop_options(HopsBody(steps="ranked"), limits, stored) == stored
    assert hop_options(HopsBody(steps="fixed", max=2), limits, stored) == HopOptions("fixed", max=2)
    assert hop_options(HopsBody(steps="fixed"), limits, stored) == HopOptions("fixed", max=4)
    assert hop_options(HopsBody(steps="single"), limits, stored) == HopOptions()
    assert hop_options(HopsBody(max=2), limits, stored) == replace(stored, max=2)
    assert hop_options(HopsBody(max=2), limits, None) == HopOptions("fixed", max=2)
    unlabelled = HopOptions("ranked", max=2, onward=UNLABELLED)
    assert hop_options(HopsBody(max=3), limits, unlabelled) == HopOptions("ranked", max=3)
    version = client.app.state.serving.find("hops").version  # type: ignore[attr-defined]
    own, before = version.retriever(None), set(version._hopping)
    assert own.hops.done_bias == 0.5
    body = {"query": "otter", "retriever": "hops", "hops": {"steps": "dynamic", "max": own.hops.max}}
    assert client.post("/v1/search", json=body).status_code == 200
    assert set(version._hopping) == before | {own.hops}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"query": "  \n"}, "empty"),
    ({"query": []}, "at least one query"),
    ({"query": ["a"] * 65}, "at most 64"),
    ({"query": "a" * 4001}, "at most 4,000"),
    ({"query": "a", "k": 101}, "at most 100"),
    ({"query": "a", "where": "year >"}, "filter, column"),
    ({"query": "a", "where": "colour=red"}, "colour"),
    ({"query": "a", "where": "y" * 5000}, "4,096"),
    ({"query": "a", "allow": ["nothing"]}, "nothing"),
    ({"query": "a", "hops": {"steps": "fixed", "max": 9}}, "at most 8"),
    ({"query": "a", "hops": {"steps": "single", "max": 1}}, "single"),
    ({"query": "a\ud800"}, "query"),
]


@pytest.mark.parametrize(("body", "said"), BAD, ids=[json.dumps(body)[:40] for body, _ in BAD])
def test_a_wrong_request_is_refused_with_what_was_expected(
    client: TestClient, body: dict[str, Any], said: str
) -> None:
    sent = json.dumps(body | {"retriever": "hostile"})
    response = client.post("/v1/search", content=sent, headers=JSON)
    assert said in problem(response, 422)["detail"]


def test_faults_are_listed_by_field_and_long_ones_are_cut(client: TestClient) -> None:
    body = {"query": "a", "k": 0, "size": 3, "hops": {"steps": "x" * 500, "max": 0}, "y" * 500: 1}
    answer = problem(client.post("/v1/search", json=body), 422)
    faults = {one["field"]: one["problem"] for one in answer["errors"]}
    assert faults == {
        "k": "Input should be greater than or equal to 1, got 0",
        "hops.steps": f"Input should be 'single', 'fixed', 'dynamic' or 'ranked', got '{'x' * 59}…",
        "hops.max": "Input should be greater than or equal to 1, got 0",
        "size": "Extra inputs are not permitted, got 3",
        "y" * 200: "Extra inputs are not permitted, got 1",
    }
    assert all(f"{field}: {text}" in answer["detail"] for field, text in list(faults.items())[:3])
    assert len(problem(client.post("/v1/search", json={"query": [""] * 50}), 422)["errors"]) == 10
    answer = problem(client.post("/v1/search", json={"query": ["a", ""], "hops": {"stepz": 1}}), 422)
    assert {one["field"] for one in answer["errors"]} == {"query", "query.1", "hops.stepz"}


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("bm25", {"hops": {"steps": "dynamic"}}, 'DONE: choose hops.steps "fixed", or a single step'),
        (
            "generative",
            {"query": "otter " * 600},
            "Only the operator of the server can set --limits.query, --data.max_query_tokens",
        ),
    ],
)  # fmt: skip
def test_errors_of_the_library_name_fields(kinds: Path, name: str, body: dict[str, Any], said: str) -> None:
    with client_of(serving_of({name: kinds / name})) as client:
        detail = problem(client.post("/v1/search", json={"query": "otter"} | body), 422)["detail"]
    assert said in detail
    assert "--hops.steps" not in detail


def test_an_unknown_retriever(client: TestClient) -> None:
    said = problem(client.post("/v1/search", json={"query": "a", "retriever": "../x"}), 404)["detail"]
    assert "bm25, generative, hops, hostile" in said
    assert "../x" not in said


@pytest.mark.parametrize(
    ("content", "status"), [("", 422), ("[{}]", 422), ("null", 422), ("\x00", 400), ('{"query": "a", ', 400)]
)
def test_a_body_that_is_no_json_or_no_object(client: TestClient, content: str, status: int) -> None:
    problem(client.post("/v1/search", content=content, headers=JSON), status)


def test_a_body_that_is_not_utf8_or_too_deep(client: TestClient) -> None:
    problem(client.post("/v1/search", content=b'{"query": "\xff"}', headers=JSON), 400)
    deep = b'{"query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert client.post("/v1/search", content=deep, headers=JSON).status_code in (400, 422)


def test_a_form_or_plain_text_is_refused(client: TestClient) -> None:
    """A page of another origin can send these without asking."""
    kinds = "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
    for headers in ({}, *({"content-type": kind} for kind in kinds)):
        response = client.post("/v1/search", content='{"query": "a"}', headers=headers)
        (fault,) = problem(response, 422)["errors"]
        assert fault["problem"] == "expected JSON (header content-type: application/json)"


def test_a_body_above_the_limit(slow: Callable[..., tuple[TestClient, Slow]]) -> None:
    client, _ = slow(body=100)
    assert client.post("/v1/search", json={"query": "a"}).status_code == 200
    said = problem(client.post("/v1/search", json={"query": "a" * 100}), 413)["detail"]
    assert "100 bytes" in said

    def parts() -> Any:
        yield b'{"query": "'
        yield b"a" * 200

    problem(client.post("/v1/search", content=parts()), 413)


def test_no_address_and_no_method(client: TestClient) -> None:
    problem(client.get("/v2/search"), 404)
    assert problem(client.get("/v1/search"), 405)["detail"].startswith("the address takes POST, not GET.")
    assert problem(client.delete("/health"), 405)["detail"].startswith("the address takes GET, not DELETE.")


def test_an_unexpected_error_says_nothing_of_the_inside(slow: Callable[..., tuple[TestClient, Slow]]) -> None:
    client, _ = slow()
    said = problem(client.post("/v1/search", json={"query": "boom"}), 500)
    assert "boom" not in said["detail"]
    assert client.post("/v1/search", json={"query": "a"}).status_code == 200


def test_errors_name_no_place_on_this_machine(slow: Callable[..., tuple[TestClient, Slow]]) -> None:
    client, _ = slow()
    said = problem(client.post("/v1/search", json={"query": "zzz"}), 422)["detail"]
    assert said == "bad query 'zzz' for the corpus of slow"
    assert LETTERS.source not in said


def test_a_score_that_is_no_number(slow: Callable[..., tuple[TestClient, Slow]]) -> None:
    client, _ = slow()
    answer = client.post("/v1/search", json={"query": "f"})
    (hit,) = json.loads(answer.text, parse_constant=lambda name: math.nan)["results"][0]["hits"]
    assert hit["score"] is None
    hop = StreamedHop(1, None, (), -math.inf, False, True)._asdict()  # events are no JSON of pydantic
    sent = HopBody.model_validate(hop | {"scores": [-math.inf], "links": [[]]})
    assert (sent.score, sent.scores) == (None, [None])


def test_metadata_come_where_they_are_asked_for(client: TestClient) -> None:
    body = {"query": "right quote alert", "retriever": "hostile"}
    without = client.post("/v1/search", json=body).json()["results"][0]["hits"]
    assert {hit["metadata"] for hit in without} == {None}
    hits = client.post("/v1/search", json=body | {"metadata": True}).json()["results"][0]["hits"]
    years = {passage.id: 2000 + number for number, passage in enumerate(HOSTILE)}
    assert [hit["metadata"] for hit in hits] == [{"year": years[hit["id"]]} for hit in hits]
