"""A BM25 retriever in a folder, over passages with titles and metadata."""

import os
from pathlib import Path

import pytest

import grls
from grls.api.opening import load
from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")

PASSAGES = [
    Passage("p1", "green frogs eat flies"), Passage("p2", "flies live near ponds", title="Insects"),
    Passage("p3", "ponds hold green green water and frogs", title="Ponds"), Passage("p4", "stone walls"),
]  # fmt: skip
METADATA = [{"year": 1999}, {"year": 2001, "title": "old", "score": 3, "id": "x"}, {"year": 2005}, {}]


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return Corpus.from_passages(PASSAGES, metadata=METADATA)


@pytest.fixture(scope="session")
def folder(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("adapters") / "retriever"
    BM25Retriever(corpus).save_pretrained(place)
    return place


@pytest.fixture(scope="session")
def searcher(folder: Path) -> Searcher:
    return load(folder)


@pytest.fixture(scope="session")
def tied() -> Searcher:
    """All passages have the same score."""
    return grls.BM25({"b": "green frogs", "c": "green frogs", "a": "green frogs"})
