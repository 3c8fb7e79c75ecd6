"""What a search takes and refuses, whatever the retriever, and the metadata of its hits."""

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
from failing import raises

import grls
from grls import Query
from grls.data.types import NO_METADATA
from grls.errors import DataError

CORPUS = ["Otters eat fish.", "A holt is an otter's den."]


@pytest.fixture(scope="module")
def searcher() -> grls.Searcher:
    return grls.BM25(CORPUS)


def searched(searcher: grls.Searcher, *arguments: Any, **options: Any) -> Any:
    return searcher.search(*arguments, **options)


def searched_later(searcher: grls.Searcher, *arguments: Any, **options: Any) -> Any:
    return asyncio.run(searcher.asearch(*arguments, **options))


@pytest.mark.parametrize("search", [searched, searched_later])
def test_allowed_ids(searcher: grls.Searcher, search: Callable[..., Any]) -> None:
    """A whole number is an id, as in a corpus from Python."""
    assert [hit.id for hit in search(searcher, "otter", np.int64(2), allow=[1])] == ["1"]


FORMS: list[Any] = [
    {"q1": "fish", "q2": "den"}, pd.Series(["fish", "den"], index=[7, 7]),
    pl.DataFrame({"id": [1, 2], "text": ["fish", "den"]}),
    datasets.Dataset.from_dict({"id": ["q1", "q2"], "text": ["fish", "den"]}),
    (Query("q1", "fish"), "den"),
]  # fmt: skip


@pytest.mark.parametrize("search", [searched, searched_later])
@pytest.mark.parametrize("queries", [*FORMS, iter(["fish", "den"])], ids=lambda form: type(form).__name__)
def test_every_form_of_queries_is_searched_row_by_row(
    searcher: grls.Searcher, search: Callable[..., Any], queries: Any
) -> None:
    if not isinstance(queries, list | dict) and hasattr(queries, "__next__"):
        queries = iter(["fish", "den"])  # an iterator is read once
    expected = searcher.search(["fish", "den"])
    assert expected[0] != expected[1]
    assert search(searcher, queries) == expected


def test_a_file_of_queries_is_read(searcher: grls.Searcher, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"_id": "q", "text": "den", "metadata": {}}\n', encoding="utf-8")
    assert searcher.search(file) == [searcher.search("den")]
    with pytest.raises(DataError, match=r"one query, and it is a file; write Path\('.*queries.jsonl'\)"):
        searcher.search(str(file))


def test_rows_of_a_frame(searcher: grls.Searcher) -> None:
    """A search needs no ids; a row is no list of queries."""
    frame = pd.DataFrame({"text": ["fish", "den"]})
    assert searcher.search(frame[frame.text == "den"]) == [searcher.search("den")]
    row = next(frame.assign(title="t").itertuples(index=False))
    for read in (searcher.search, grls.BM25):
        raises(DataError, r"this is a single row, .*\[row._asdict\(\)\]", read, row)


def test_the_remedy_of_a_long_query_works(kinds: Path) -> None:
    long = "is the otter calm ? " * 200
    for kind in ("dense", "generative", "rescored"):
        with pytest.raises(
            DataError, match=r"accept the cut with grls.load\(FOLDER, truncate_queries=True\)"
        ):
            grls.load(kinds / kind, device="cpu").search(long)
        assert grls.load(kinds / kind, device="cpu", truncate_queries=True).search(long)


DATED = [
    {"id": "a", "title": "Otters", "text": "otters eat fish .", "year": 1999, "tags": ["river", "sea"]},
    {"id": "b", "text": "otters sleep ."},
]


def test_hits_hold_what_filters_compare() -> None:
    bm25 = grls.BM25(DATED)
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
    bm25 = grls.BM25(DATED)
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
    bm25 = grls.BM25(DATED)
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
