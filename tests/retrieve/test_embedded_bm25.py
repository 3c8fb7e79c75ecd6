"""An embedded BM25 stores its analyzer when it is made; opening and changing passages guess nothing."""

import logging
from pathlib import Path
from typing import Any

import pytest

import grls.data.words
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import Analyzer
from grls.errors import DataError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.registry import Opening, create, load_named, load_retriever
from grls.retrieve.spec import read_spec, write_spec
from grls.retrieve.update import Changes, update_folder

GERMAN = [
    "Die Eule ist ein Vogel.",
    "Der Fuchs und die Maus sind im Wald.",
    "Das ist nicht neu für die Katze.",
]
CPU = Opening("cpu")


def corpus(*texts: str, start: int = 0) -> Corpus:
    return Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts, start)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fusion of BM25 in a folder of its own and of BM25 by its name."""
    BM25Retriever(corpus(*GERMAN)).save_pretrained(tmp_path / "words")
    create(tmp_path / "fused", "fusion", {"members": ["../words", "bm25"]}, CPU)
    return tmp_path / "fused"


def analyzers(opened: Any) -> list[Analyzer]:
    return [member.analyzer for member in opened.members]


@pytest.mark.parametrize(
    ("member", "stored"),
    [
        ("bm25", {"language": "de"}),
        ({"kind": "bm25"}, {"language": "de"}),
        ({"kind": "bm25", "analyzer": {"stem": True}}, {"language": "de", "stem": True}),
        ({"kind": "bm25", "analyzer": {"language": "auto"}}, {"language": "de"}),
        ({"kind": "bm25", "analyzer": {"language": "none"}}, {"language": "none"}),
    ],
)
def test_a_composite_stores_the_language_of_its_corpus(
    tmp_path: Path, member: Any, stored: dict[str, Any]
) -> None:
    BM25Retriever(corpus(*GERMAN)).save_pretrained(tmp_path / "words")
    members = ["../words", {"kind": "cut", "retriever": member, "depth": 3}, member]
    made: Any = create(tmp_path / "fused", "fusion", {"members": members}, CPU)
    found = read_spec(tmp_path / "fused")["members"]
    assert found[2] == found[1]["retriever"] == {"kind": "bm25", "analyzer": stored}
    assert made.members[2].analyzer == load_retriever(tmp_path / "fused", CPU).members[2].analyzer
    assert made.members[2].analyzer == Analyzer(**stored)
    again = {"kind": "bm25"} if member == "bm25" else member
    cut = {"kind": "cut", "retriever": member, "depth": 3}
    made.save_pretrained(tmp_path / "again", [tmp_path / "words", cut, again])
    assert read_spec(tmp_path / "again")["members"] == found


def test_changed_passages_change_no_words(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = analyzers(load_retriever(folder, CPU))
    assert before == [Analyzer("de")] * 2
    caplog.clear()
    english = corpus("The owl hunts mice at night.", "It is a bird with large eyes.", "be do", start=9)
    update_folder(folder, folder.with_name("new"), Changes(english, ["p0", "p1", "p2"]))
    assert analyzers(load_retriever(folder.with_name("new"), CPU)) == before
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_nothing_is_guessed_at_opening(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(folder.with_name("bare"), "fusion", {"members": ["../words", "bm25"]})
    monkeypatch.setattr(grls.data.words, "guess", lambda _: pytest.fail("a guess"))
    assert analyzers(load_retriever(folder, CPU)) == [Analyzer("de")] * 2
    assert analyzers(load_retriever(folder.with_name("bare"), CPU)) == [Analyzer("de"), Analyzer("en")]


def test_bm25_by_name_has_the_language_of_the_corpus_at_hand() -> None:
    opened: Any = load_named("bm25", corpus(*GERMAN), CPU)
    assert opened.analyzer == Analyzer("de")
    stemmed: Any = load_named("bm25", corpus(*GERMAN), CPU, Analyzer("en", stem=True))
    assert stemmed.analyzer == Analyzer("en", stem=True)


def test_a_stored_auto_is_refused(folder: Path) -> None:
    members = ["../words", {"kind": "bm25", "analyzer": {"language": "auto"}}]
    write_spec(folder.with_name("auto"), "fusion", {"members": members})
    with pytest.raises(DataError, match=r"analyzer\.language: a folder stores its language"):
        load_retriever(folder.with_name("auto"), CPU)
