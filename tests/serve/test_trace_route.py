"""POST /v1/trace and GET /v1/retrievers: what the beam considers, and what can be asked."""

from pathlib import Path
from typing import Any

import pytest
from failing import raises
from serve_helpers import client_of, serving_of
from starlette.testclient import TestClient

import grls
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.filters import where
from grls.data.pseudo_queries import sentence_queries
from grls.data.types import Passage, Query
from grls.data.where import filter_word
from grls.errors import DataError
from grls.explain.beams import trace_beam
from grls.serve.routes import _fields
from grls.serve.served import example_queries, queries_to_try, sampled_metadata

QUERY = "is the otter kind ?"


def test_a_trace_is_that_of_the_library(client: TestClient, kinds: Path) -> None:
    body = {"query": QUERY, "retriever": "hops", "evidence": ["otter-calm"]}
    response = client.post("/v1/trace", json=body)
    assert response.status_code == 200, response.text
    sent = response.json()
    expected = trace_beam(grls.load(kinds / "hops", device="cpu").retriever, QUERY, ["otter-calm"])
    assert (sent["retriever"], sent["version"]) == ("hops", 1)
    assert (sent["beams"], sent["k"], sent["passages"]) == (expected.beams, expected.k, expected.passages)
    assert [one["id"] for one in sent["results"]] == [one.id for one in expected.results]
    assert [len(step["tokens"]) for step in sent["steps"]] == [len(step.tokens) for step in expected.steps]
    first, other = sent["steps"][0]["tokens"][0], expected.steps[0].tokens[0]
    assert (first["token"], first["fate"], first["passages"]) == (other.token, other.fate, other.passages)
    assert first["full"] == pytest.approx(other.full, abs=1e-5)


def test_hops_and_filters_of_a_request(client: TestClient) -> None:
    body = {"query": QUERY, "retriever": "generative", "allow": ["otter-calm", "r0", "r1"], "k": 2, "most": 5}
    sent = client.post("/v1/trace", json=body | {"hops": {"steps": "dynamic"}, "evidence": ["r1"]}).json()
    assert sent["passages"] == 3  # two passages and DONE
    assert all(len(step["tokens"]) <= 5 for step in sent["steps"])


def test_wrong_requests(client: TestClient) -> None:
    right = {"query": QUERY, "retriever": "generative"}
    for wrong, said in (
        ({"retriever": "bm25"}, "decodes no tokens"),
        ({"evidence": ["no such passage"]}, "no such passage"),
        ({"evidence": ["a"] * 65}, "evidence"),
        ({"k": 101}, "at most 100"),
    ):
        response = client.post("/v1/trace", json=right | wrong)
        assert response.status_code == 422, wrong
        assert response.headers["content-type"] == "application/problem+json"
        assert said in response.json()["detail"], response.text
    assert client.post("/v1/trace", json=right | {"retriever": "no"}).status_code == 404


def test_what_can_be_asked(client: TestClient) -> None:
    sent = client.get("/v1/retrievers").json()
    assert sent["limits"] == {"k": 100, "hops": 8, "queries": 64, "characters": 4000, "seconds": 60.0}
    assert sent["answers"] == []
    bm25, generative, hops, hostile = sent["retrievers"]
    assert [one["retriever"] for one in sent["retrievers"]] == ["bm25", "generative", "hops", "hostile"]
    assert (bm25["kind"], bm25["passages"], bm25["hops"]) == ("bm25", 10, {"steps": "single", "max": None})
    assert "decodes no tokens" in bm25["no_beam"]
    assert (generative["kind"], generative["no_beam"]) == ("generative", None)
    assert (hops["kind"], hops["hops"]) == ("generative", {"steps": "dynamic", "max": 3})
    assert hostile["fields"] == [
        {"name": "year", "kind": "number", "values": [2000, 2004], "where": "year>=2004"}
    ]
    assert len(bm25["examples"]) == 2  # the test split of the data set beside the folder


def test_filters_of_fields_find_something() -> None:
    """For every field that a filter can compare, in names and values that need quotes, too."""
    metadata: list[dict[str, Any]] = [
        {"lang": "de", "a b": "it's \\\"", "or": "true", "n": 1.5, "open": True, "tags": ["x", 3]},
        {"lang": "de", "": "null", "n": -2, "open": False, "tags": ["in", "x"], "object": {}, "none": None},
        {"lang": "fr", "long": "x" * 100, "1st": "2000", "n": 0, "é": "-"},
    ]
    corpus = Corpus.from_passages([Passage(name, name) for name in "abc"], metadata=metadata)
    fields = {field.name: field for field in _fields(sampled_metadata(corpus))}
    assert fields.keys() == {"lang", "a b", "or", "n", "open", "tags", "", "long", "1st", "é"}
    lang = {"name": "lang", "kind": "text", "values": ["de", "fr"], "where": "lang=de"}
    assert fields["lang"].model_dump() == lang
    assert (fields["n"].kind, fields["n"].values, fields["open"].kind) == ("number", [-2, 1.5], "boolean")
    for name, field in fields.items():
        assert len(where(field.where).numbers(corpus)), name
        for value in field.values if field.kind == "text" else ():
            numbers = where(f"{filter_word(name)}={filter_word(str(value))}").numbers(corpus)
            held = [n for n, record in enumerate(metadata) if value in (record.get(name) or ())]
            assert numbers.tolist() == held != [], (name, value)


def test_examples_of_a_file(tmp_path: Path, hostile: Path) -> None:
    file = tmp_path / "queries.txt"
    raises(DataError, "no such file", queries_to_try, file)
    file.write_text("what do otters eat ?\n<script>alert(1)</script>\n")
    serving = serving_of({"hostile": hostile})
    serving.examples = queries_to_try(file)
    with client_of(serving) as client:
        (one,) = client.get("/v1/retrievers").json()["retrievers"]
    assert one["examples"] == ["what do otters eat ?", "<script>alert(1)</script>"]


def test_cut_sentences_are_no_questions_to_try(tmp_path: Path) -> None:
    passages = [Passage("a", "Otters eat fish and crabs . They sleep in a holt .")]
    cut = sentence_queries(Corpus.from_passages(passages), 3, 0, ())
    asked = [Query("q", "what do otters eat ?")]
    for name, queries in (("cut", cut), ("both", [*cut, *asked])):
        write_dataset(tmp_path / name / "data", passages, queries, {})
    assert example_queries(tmp_path / "cut") == []
    assert example_queries(tmp_path / "both") == ["what do otters eat ?"]


def test_a_damaged_data_set_gives_no_examples(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "queries.jsonl").write_text("no json\n")
    assert example_queries(tmp_path) == []
