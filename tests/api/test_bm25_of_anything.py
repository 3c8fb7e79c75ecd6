"""``grls.BM25`` over any corpus."""

import gc
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from failing import raises
from small_data import write_small

import grls
from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError, GrlsError
from grls.retrieve.bm25 import BM25Options, BM25Retriever

TEXTS = ["otters eat fish .", "a holt is the den of an otter .", "herons eat frogs ."]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.mark.parametrize("corpus", [
    TEXTS,
    {str(n): text for n, text in enumerate(TEXTS)},
    pd.DataFrame({"text": TEXTS}),
    grls.Corpus.from_passages([grls.Passage(str(n), text) for n, text in enumerate(TEXTS)]),
])  # fmt: skip
def test_it_searches_what_it_gets(corpus: Any) -> None:
    bm25 = grls.BM25(corpus)
    hits = bm25.search("what do otters eat ?", k=2)
    assert [(hit.id, hit.text) for hit in hits] == [("0", TEXTS[0]), ("2", TEXTS[2])]
    assert isinstance(bm25, grls.Searcher)


def test_a_text_of_an_enumeration_is_its_value() -> None:
    class Text(str, Enum):  # noqa: UP042  its str() is its name
        ONE = "london calling"

    assert grls.BM25([Text.ONE]).search("london")[0].text == "london calling"


def test_it_is_in_memory_until_it_is_saved(place: Path, tmp_path: Path) -> None:
    bm25 = grls.BM25(TEXTS)
    found = bm25.search("den")
    assert bm25.folder is None
    raises(ConfigError, r"got BM25\(bm25, 3 passages\)", bm25.search, "den", k=bm25)
    folder = bm25.save(tmp_path / "saved")
    assert grls.load(folder).search("den") == found
    assert repr(grls.load(folder)) == f"Searcher({str(folder)!r}: bm25, 3 passages)"
    assert list(place.iterdir()) == []


def test_options_are_those_of_the_retriever_and_are_kept(tmp_path: Path, place: Path) -> None:
    analyzer, options = Analyzer("en", stem=True), BM25Options(0.9, 0.4, "atire")
    bm25 = grls.BM25(TEXTS, 0.9, 0.4, "atire", analyzer, output=tmp_path / "bm25")
    expected = BM25Retriever(bm25.corpus, options, analyzer).retrieve(["otter"], 3)[0]
    assert [(hit.id, hit.score) for hit in bm25.search("otter")] == [hit[:2] for hit in expected]
    assert len(expected) == 2
    del bm25
    gc.collect()
    assert list(place.iterdir()) == []
    again = grls.load(tmp_path / "bm25")
    assert [(hit.id, hit.score) for hit in again.search("otter")] == [hit[:2] for hit in expected]
    assert json.loads((tmp_path / "bm25" / "grls.json").read_text())["k1"] == 0.9


def test_a_path_is_a_corpus(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    assert grls.BM25(folder).search("otter calm", k=1)[0].id == "otter-calm"


@pytest.mark.parametrize(("corpus", "options", "error", "why"), [
    ([], {}, DataError, "there is no passage"),
    (["…", "!"], {}, DataError, "no word to index"),
    (TEXTS, {"b": 1.5}, ConfigError, "b must be between 0 and 1, got 1.5"),
    (TEXTS, {"k1": -1}, ConfigError, "k1 must be at least 0, got -1"),
    (TEXTS, {"k1": "high"}, ConfigError, "BM25: k1 must be a number, got 'high'"),
    (TEXTS, {"method": "bm26"}, ConfigError, "BM25: method must be one of lucene, .*got 'bm26'"),
    (TEXTS, {"analyzer": Analyzer("xx", stem=True)}, ConfigError, "no stemmer"),
])  # fmt: skip
def test_what_cannot_work_leaves_nothing(
    corpus: Any, options: dict[str, Any], error: type[GrlsError], why: str, tmp_path: Path, place: Path
) -> None:
    for output in (None, tmp_path / "bm25"):
        raises(error, why, grls.BM25, corpus, **options, output=output)
    gc.collect()
    assert list(place.iterdir()) == []
    assert not (tmp_path / "bm25").exists()
