"""Hits hold the metadata of their passages, which are parsed when they are asked for."""

import copy
import json
import pickle
from typing import Any

import pytest

import grls
from grls.data.types import NO_METADATA

CORPUS = [
    {"id": "a", "title": "Otters", "text": "otters eat fish .", "year": 1999, "tags": ["river", "sea"]},
    {"id": "b", "text": "otters sleep ."},
]


def test_hits_hold_what_filters_compare() -> None:
    bm25 = grls.BM25(CORPUS)
    hits = {hit.id: hit for hit in bm25.search("otters")}
    assert hits["a"].metadata == {"year": 1999, "tags": ["river", "sea"]}
    assert hits["b"].metadata == {} == NO_METADATA
    assert hits["a"].metadata.get("year") == 1999
    assert [hit.id for hit in bm25.search("otters", where="year=1999")] == ["a"]
    assert bm25.search("otters") == bm25.search("otters")
    (hop,) = bm25.stream("otters eat")
    assert hop.chain[0].metadata["year"] == 1999
    assert grls.Hit("a", 1.0).metadata == {}


def test_nothing_is_parsed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bm25 = grls.BM25(CORPUS)
    bm25.search("otters")
    parsed: list[str] = []
    loads = json.loads

    def noted(text: str) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr("grls.data.types.json.loads", noted)
    (hit, *_) = bm25.search("otters eat fish")
    assert parsed == []
    assert hit.metadata["year"] == 1999 == dict(hit.metadata)["year"]
    assert parsed == ['{"year": 1999, "tags": ["river", "sea"]}']


def test_a_hit_is_the_tuple_of_before() -> None:
    """It is unpacked, compared, hashed and written as JSON without metadata, and copies keep them."""
    bm25 = grls.BM25(CORPUS)
    (hit,) = bm25.search("fish")
    name, score, text, title = hit
    assert (name, text, title) == ("a", "otters eat fish .", "Otters")
    assert hit == grls.Hit(name, score, text, title)
    assert {hit} == {grls.Hit(name, score, text, title)}
    assert json.loads(json.dumps(hit)) == list(hit)
    copies: list[Any] = [hit._replace(score=0.5), copy.copy(hit), pickle.loads(pickle.dumps(hit))]
    assert all(isinstance(one, grls.Hit) and one.metadata == hit.metadata for one in copies)
    assert repr(hit).startswith("Hit(id='a', score=")
    assert repr(hit).endswith("metadata={'year': 1999, 'tags': ['river', 'sea']})")
