"""BM25 against its formula; one that is embedded stores its analyzer, and guesses nothing later."""

import logging
import math
from pathlib import Path
from typing import Any, get_args

import bm25s
import numpy as np
import pytest
from composite_specs import create, write_spec
from failing import raises
from small_data import FROGS

import grls.data.words
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import DataError
from grls.retrieve.bm25 import BM25Options, BM25Retriever, Variant
from grls.retrieve.registry import Opening, load_named, load_retriever
from grls.retrieve.spec import read_spec
from grls.retrieve.update import Changes, update_folder

CORPUS = Corpus.from_passages(FROGS)


def lucene_bm25(query: str, k1: float, b: float) -> dict[str, float]:
    """The formula, word by word (stop words kept)."""
    words = {p.id: [w for w in f"{p.title} {p.text}".lower().split() if len(w) > 1] for p in FROGS}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = dict.fromkeys(words, 0.0)
    for word in query.lower().split():
        holders = sum(word in text for text in words.values())
        idf = math.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
        for passage_id, text in words.items():
            count = text.count(word)
            scores[passage_id] += idf * count / (count + k1 * (1 - b + b * len(text) / mean_length))
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4)])
def test_scores_follow_the_formula(k1, b):
    query = "Green frogs near insects"
    retriever = BM25Retriever(CORPUS, BM25Options(k1, b), Analyzer("none"))
    hits = retriever.retrieve([Query("q", query)], 10)[0]
    expected = {i: score for i, score in lucene_bm25(query, k1, b).items() if score > 0}
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)
    assert [hit.id for hit in hits] == sorted(expected, key=lambda i: -expected[i])


def test_hits_are_the_front_of_all_scores_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = BM25Retriever(Corpus.from_passages(Passage(f"p{n}", "word") for n in range(200)))
    random = np.random.default_rng(0)
    for k in (1, 2, 7, 50, 199, 200, 500) * 20:  # scores with ties, of few or many passages
        scores = np.float32(random.integers(-3, 9, 200) / 7 * (random.random(200) < random.random() ** 2))
        monkeypatch.setattr(retriever, "_scores", lambda words, scores=scores: scores)
        allowed = sorted(random.choice(200, random.integers(1, 201), replace=False).tolist())
        for rows, allow in ((range(200), None), (allowed, [f"p{n}" for n in allowed])):
            found = sorted((n for n in rows if scores[n] > 0), key=lambda n: -scores[n])[:k]
            expected = [(f"p{n}", float(scores[n])) for n in found]
            assert [hit[:2] for hit in retriever.retrieve(["word"], k, allow)[0]] == expected


@pytest.mark.parametrize("method", get_args(Variant))
def test_hits_are_the_passages_with_a_common_word(method: Variant) -> None:
    """By the number of its passages a variant gives a word nothing, or passages without it something."""
    texts = ["owl owl C++ ibis", "owl C++ R", "owl vole R newts swim far", "owl R heron", "owl ibis"]
    passages = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])
    retriever = BM25Retriever(passages, BM25Options(method=method))
    bm25s_index = bm25s.BM25(k1=1.5, b=0.75, method=method)
    bm25s_index.index([[w for w in text.split() if w.islower()] for text in texts], show_progress=False)
    for query in ("owl", "vole", "R", "C++", "ibis R", "heron ibis", "owl vole newt", "newt"):
        words = query.lower().split()
        sharing = {n for n, text in enumerate(texts) if {*words} & {*text.lower().split()}}
        scores = retriever.text_scores([query])[0]
        assert {int(hit.id) for hit in retriever.retrieve([query], 9)[0]} == sharing, query
        assert {*np.flatnonzero(scores)} == {*np.flatnonzero(scores > 0)} == sharing
        for number, text in enumerate(texts):
            parts = retriever.word_scores(query, number)
            assert {word for word in words if parts.get(word)} == {*words} & {*text.lower().split()}
            assert sum(parts.values()) == pytest.approx(scores[number])
        if query.islower() and (known := [word for word in words if word != "newt"]):
            constant = bm25s_index.get_scores(known) - scores
            assert constant == pytest.approx(constant[0])
    for k1 in (0.0, 1e30):
        found = BM25Retriever(passages, BM25Options(k1, 0.75, method)).retrieve(["vole R ibis"], 9)[0]
        assert {hit.id for hit in found} == set("01234")


def test_a_letter_and_a_sign_weigh_as_other_words_of_their_number_do() -> None:
    """Their own mean length, of hardly any such word a passage, left next to nothing of their weight."""
    texts = [f"otter vole heron {n % 4}x ibis" for n in range(396)]
    texts += [f"otter with {sign} and many other words of a longer text" for sign in ["R", "α", "😀", "C#"]]
    retriever = BM25Retriever(corpus(*texts))
    for n, sign in enumerate(["R", "α", "😀", "C#"], 396):
        hits = retriever.retrieve([f"heron otter {sign}"], 1)[0]
        assert [hit.id for hit in hits] == [f"p{n}"]
        alone = retriever.word_scores(sign, n)
        assert alone[sign.lower()] == pytest.approx(math.log(1 + 399.5 / 1.5) / 2.5)


def test_a_query_of_function_words_alone_is_searched_with_them(caplog: pytest.LogCaptureFixture) -> None:
    texts = "It is a film.", "To be is to do.", "Will and his otter", "The will to swim"
    usual = BM25Retriever(corpus(*texts))
    every = BM25Retriever(corpus(*texts), analyzer=Analyzer("en", stop_words=False))
    for query in ("IT", "Will", "to be or not to be", "the it"):
        hits = usual.retrieve([query], 4)
        assert hits == every.retrieve([query], 4) != [[]]
        assert usual.text_scores([query]).tolist() == every.text_scores([query]).tolist()
        assert usual.word_scores(query, 1) == every.word_scores(query, 1)
    assert not caplog.records
    assert [hit.id for hit in usual.retrieve(["will otter"], 4)[0]] == ["p2"], (
        "beside others they do not count"
    )
    assert usual.retrieve(["will zebra"], 4) == [[]]


def test_a_query_without_a_known_word_gets_no_hit():
    queries = [Query("q1", "zebra"), Query("q2", "?"), Query("q3", "the zebra"), Query("q4", "stone")]
    assert [len(hits) for hits in BM25Retriever(CORPUS).retrieve(queries, 5)] == [0, 0, 0, 2]
    assert BM25Retriever(CORPUS).retrieve([], 5) == []
    raises(DataError, "no word to index", BM25Retriever, Corpus.from_passages([]))


GERMAN = [
    "Die Eule ist ein Vogel.", "Der Fuchs und die Maus sind im Wald.", "Das ist nicht neu für die Katze.",
]  # fmt: skip
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


@pytest.mark.parametrize(("member", "stored"), [
    ("bm25", {"language": "de"}),
    ({"kind": "bm25"}, {"language": "de"}),
    ({"kind": "bm25", "analyzer": {"stem": True}}, {"language": "de", "stem": True}),
    ({"kind": "bm25", "analyzer": {"language": "auto"}}, {"language": "de"}),
    ({"kind": "bm25", "analyzer": {"language": "none"}}, {"language": "none"}),
])  # fmt: skip
def test_a_composite_stores_the_language_of_its_corpus(
    tmp_path: Path, member: Any, stored: dict[str, Any]
) -> None:
    BM25Retriever(corpus(*GERMAN)).save_pretrained(tmp_path / "words")
    hops = {"kind": "hops", "retriever": member, "hops": {"steps": "ranked"}}
    members = ["../words", hops, member]
    made: Any = create(tmp_path / "fused", "fusion", {"members": members}, CPU)
    found = read_spec(tmp_path / "fused")["members"]
    assert found[2] == found[1]["retriever"] == {"kind": "bm25", "analyzer": stored}
    assert made.members[2].analyzer == load_retriever(tmp_path / "fused", CPU).members[2].analyzer
    assert made.members[2].analyzer == Analyzer(**stored)


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
