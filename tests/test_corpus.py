"""Data sets: what is read, what is refused with file and line, what comes back after writing."""

import json
import re
from pathlib import Path
from typing import Any

import datasets
import pytest
from small_data import passages, queries, write_jsonl, write_small

import grls.corpus
from grls.corpus import (
    Corpus,
    gold_passages,
    read_jsonl,
    read_qrels,
    read_queries,
    read_split,
    write_dataset,
)
from grls.errors import DataError
from grls.types import Passage, Query

GOOD = {"_id": "p0", "title": "", "text": "the otter is calm .", "metadata": {}}


def refused(problem: str, file: Path, line: int | None, call: Any, *arguments: Any) -> None:
    """The call names file, line and problem."""
    where = f"{file}: " if line is None else f"{file}, line {line}: "
    with pytest.raises(DataError, match=re.escape(where) + f".*{problem}") as caught:
        call(*arguments)
    assert (caught.value.file, caught.value.line) == (file, line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"_id": "p1", ', "expected a JSON object"),
        ("[1, 2]", "expected a JSON object, got list"),
        ('"text"', "expected a JSON object, got str"),
        ({"text": "x"}, "expected '_id' to be a non-empty string, the key is missing"),
        ({"_id": "", "text": "x"}, "expected '_id' to be a non-empty string, got ''"),
        ({"_id": 7, "text": "x"}, "expected '_id' to be a non-empty string, got 7"),
        ({"_id": "p1"}, "expected 'text' to be a string, the key is missing"),
        ({"_id": "p1", "text": None}, "expected 'text' to be a string, got None"),
        ({"_id": "p1", "text": "x", "title": 3}, "expected 'title' to be a .*string, got 3"),
        ({"_id": "p1", "text": "x", "metadata": "m"}, "expected 'metadata' to be a JSON object, got 'm'"),
        (b'{"_id": "p1", "text": "caf\xe9"}', "expected UTF-8 text"),
        ({"_id": "p0", "text": "x"}, "the id 'p0' stands in line 1 already"),
        (r'{"_id": "p1", "text": "x \ud800 y"}', r"the escape \\ud800 is half a character"),
        (r'{"_id": "p1", "text": "x", "metadata": {"m": ["\udfff"]}}', r"the escape \\udfff is half"),
        ('{"_id": "p1", "text": "x", "metadata": {"n": 1' + "0" * 5000 + "}}", "expected a JSON object"),
    ],
)
def test_a_malformed_passage_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD, "", bad])
    refused(problem, file, 3, Corpus.read, tmp_path)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{", "expected a JSON object"),
        ({"_id": "q1"}, "expected 'text' to be a non-empty string, the key is missing"),
        ({"_id": "q1", "text": ""}, "expected 'text' to be a non-empty string, got ''"),
        ({"_id": "q1", "text": "  "}, "the query text is empty"),
        ({"text": "x"}, "expected '_id' to be a non-empty string, the key is missing"),
        ({"_id": "q1", "text": "x", "evidence": "p0"}, "expected evidence to be a list of strings"),
        ({"_id": "q1", "text": "x", "evidence": [1]}, "expected evidence to be a list of strings"),
        (
            {"_id": "q1", "text": "x", "metadata": {"answers": "a"}},
            "metadata.answers to be a list of strings",
        ),
        ({"_id": "q1", "text": "x", "metadata": []}, "expected 'metadata' to be a JSON object"),
        ({"_id": "q0", "text": "x"}, "the query id 'q0' is used twice"),
        (b'{"_id": "q1", "text": "\xff"}', "expected UTF-8 text"),
        (r'{"_id": "q1", "text": "\uDC00\uD800"}', "half a character"),
        ('{"_id": "q1", "text": "x", "n": ' + "[" * 99999 + "]" * 99999 + "}", "expected a JSON object"),
    ],
)
def test_a_malformed_query_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "is it ?"}, bad])
    refused(problem, file, 2, read_queries, tmp_path)


@pytest.mark.parametrize(
    "bad",
    [
        "q0\tp0",
        "q0\tp0\thigh",
        "q0 p0 1",
        "q0\tp0\t1\t2",
        "q0\tp0\t0.5",
        "q0\tp0\t--1",
        "q0\tp0\t²",
        f"q0\tp0\t{'1' * 5000}",
    ],
)
def test_a_malformed_qrel_is_named_with_file_and_line(tmp_path: Path, bad: str) -> None:
    file = write_jsonl(tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", "q0\tp0\t1", bad])
    refused("expected three tab-separated columns", file, 3, read_qrels, file)


def test_qrels_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", b"q\xe9\tp0\t1"])
    refused("expected UTF-8", file, 2, read_qrels, file)


def test_qrels_of_beir_are_read(tmp_path: Path) -> None:
    """With and without header, negative grades, Windows line ends, a blank last line."""
    file = tmp_path / "test.tsv"
    file.write_bytes(b"query-id\tcorpus-id\tscore\r\nq0\tp0\t2\r\nq0\tp1\t-1\r\nq1\tp0\t0\r\n\r\n")
    assert read_qrels(file) == {"q0": {"p0": 2, "p1": -1}, "q1": {"p0": 0}}
    file.write_text("q0\tp0\t1\n")
    assert read_qrels(file) == {"q0": {"p0": 1}}


def test_missing_files_are_named(tmp_path: Path) -> None:
    refused("no such file", tmp_path / "corpus.jsonl", None, Corpus.read, tmp_path)
    refused("no such file", tmp_path / "queries.jsonl", None, read_queries, tmp_path)
    refused("no such file", tmp_path / "x.tsv", None, read_qrels, tmp_path / "x.tsv")
    refused("no such file", tmp_path / "none", None, Corpus.read, tmp_path / "none")


def test_empty_files_are_refused(tmp_path: Path) -> None:
    for text in ("", "\n\n"):
        (tmp_path / "corpus.jsonl").write_text(text)
        (tmp_path / "queries.jsonl").write_text(text)
        refused("the corpus is empty", tmp_path / "corpus.jsonl", None, Corpus.read, tmp_path)
        refused("the file holds no query", tmp_path / "queries.jsonl", None, read_queries, tmp_path)


def split(tmp_path: Path, evidence: list[str], qrel: tuple[str, str]) -> Path:
    write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    query = {"_id": "q0", "text": "is it ?", "evidence": evidence}
    write_jsonl(tmp_path / "queries.jsonl", [query, {"_id": "q9", "text": "of no split"}])
    write_jsonl(tmp_path / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "\t".join([*qrel, "1"])])
    return tmp_path


def test_unknown_ids_are_refused_and_named(tmp_path: Path) -> None:
    folder = split(tmp_path, [], ("q1", "p0"))
    refused("query id 'q1' stands in no line", folder / "qrels/test.tsv", None, read_split, folder, "test")
    folder = split(tmp_path, [], ("q0", "p1"))
    corpus = Corpus.read(folder)
    problem = "qrel of query 'q0': passage id 'p1' is not in .*corpus.jsonl"
    refused(problem, folder / "qrels/test.tsv", None, read_split, folder, "test", corpus)
    folder = split(tmp_path, ["p0", "p2"], ("q0", "p0"))
    problem = "evidence of query 'q0': passage id 'p2' is not in .*corpus.jsonl"
    refused(problem, folder / "queries.jsonl", None, read_split, folder, "test", corpus)


def test_a_split_holds_its_own_queries(tmp_path: Path) -> None:
    folder = split(tmp_path, ["p0"], ("q0", "p0"))
    found, qrels = read_split(folder, "test", Corpus.read(folder))
    assert found == [Query("q0", "is it ?", ("p0",))]
    assert qrels == {"q0": {"p0": 1}}


TRICKY = [
    Passage("a", 'tabs\tand "quotes" and {braces}\nand a line'),
    Passage("b", ""),
    Passage("ü/½ id", "naïve façade — 水獺 🦦", "Tïtle"),
    Passage("d", "<DONE> </s> <EVIDENCE>", "<TITLE>"),
    Passage("e", ""),
]


def test_a_data_set_survives_writing_and_reading(tmp_path: Path) -> None:
    asked = [
        Query("q", "wo? 水獺", ("d", "a"), ("yes", "no"), '{"proofs": [["a"]]}'),
        Query("r", "is it ?"),
    ]
    write_dataset(tmp_path / "set", TRICKY, asked, {"test": {"q": {"d": 1, "a": 2}}, "train": {}})
    corpus = Corpus.read(tmp_path / "set")
    assert list(corpus) == TRICKY
    read = read_queries(tmp_path / "set")
    assert [q[:4] for q in read] == [q[:4] for q in asked]
    assert json.loads(read[0].metadata) == {"proofs": [["a"]], "answers": ["yes", "no"]}
    assert read_qrels(tmp_path / "set/qrels/test.tsv") == {"q": {"d": 1, "a": 2}}
    corpus.write(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "set/corpus.jsonl").read_bytes()
    assert Corpus.read(tmp_path / "again.jsonl").fingerprint == corpus.fingerprint


def test_metadata_of_passages_is_kept(tmp_path: Path) -> None:
    record = {**GOOD, "metadata": {"source": "own", "n": [1]}}
    corpus = Corpus.read(write_jsonl(tmp_path / "corpus.jsonl", [record]))
    corpus.write(tmp_path / "again.jsonl")
    assert [r for _, r in read_jsonl(tmp_path / "again.jsonl")] == [record]
    write_dataset(tmp_path / "set", corpus, [], {})
    assert [r for _, r in read_jsonl(tmp_path / "set/corpus.jsonl")] == [record]


def test_a_character_in_two_escapes_is_whole(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [r'{"_id": "p0", "text": "\ud83e\udda6 \\ud800"}'])
    assert Corpus.read(file)[0].text == "\N{OTTER} \\ud800"


def test_gold_is_what_the_qrels_grade_in_the_order_of_the_evidence() -> None:
    query = Query("q", "is it ?", ("c", "x", "a", "c"))
    assert gold_passages(query, {"q": {"a": 1, "b": 2, "c": 1, "d": 0, "x": 0}}) == ["c", "a", "b"]
    assert gold_passages(query, {"q": {"d": 0}}) == []
    assert gold_passages(query, {"r": {"d": 1}}) == ["c", "x", "a"]
    assert gold_passages(Query("q", "is it ?"), {"q": {"b": 1, "a": 1}}) == ["b", "a"]


def test_numbers_and_ids_are_inverse(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(TRICKY)
    assert corpus.numbers(["d", "missing", "a", "d"]) == [3, None, 0, 3]
    assert corpus.ids([3, 0]) == ["d", "a"]
    assert corpus.passages([2, 2, 0]) == [TRICKY[2], TRICKY[2], TRICKY[0]]
    assert corpus[1] == TRICKY[1]
    assert [len(batch) for batch in corpus.batches(2)] == [2, 2, 1]


def test_fingerprint_sees_ids_titles_texts_and_order() -> None:
    def of(*some: Passage) -> str:
        return Corpus.from_passages(some).fingerprint

    base = of(Passage("a", "x"), Passage("b", "y"))
    assert base == of(Passage("a", "x"), Passage("b", "y"))
    others = [
        of(Passage("b", "y"), Passage("a", "x")),
        of(Passage("a", "x"), Passage("c", "y")),
        of(Passage("a", "x", "t"), Passage("b", "y")),
        of(Passage("a", "x"), Passage("b", "z")),
        of(Passage("a", "x")),
    ]
    assert len({base, *others}) == 6


def test_a_large_corpus_is_mapped_from_disk_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_small(tmp_path / "set")
    small = Corpus.read(folder)
    assert not small.table.cache_files
    monkeypatch.setattr(grls.corpus, "_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(grls.corpus, "_BATCH", 3)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    large = Corpus.read(folder)
    (cached,) = [Path(f["filename"]) for f in large.table.cache_files]
    assert cached.is_relative_to(tmp_path / "cache")
    assert list(large) == list(small) == passages()
    assert large.fingerprint == small.fingerprint
    ids = [p.id for p in passages()]
    assert large.numbers([*ids, "x"]) == [*range(len(ids)), None]
    made = cached.stat().st_mtime_ns
    assert list(Corpus.read(folder)) == list(small)
    assert cached.stat().st_mtime_ns == made, "the cache is used"


def test_the_cache_follows_a_change_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grls.corpus, "_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    assert len(Corpus.read(file)) == 1
    write_jsonl(file, [GOOD, {**GOOD, "_id": "p1"}])
    assert len(Corpus.read(file)) == 2
    write_jsonl(file, [GOOD, GOOD, GOOD])
    refused("the id 'p0' stands in line 1 already", file, 2, Corpus.read, file)
    write_jsonl(file, [GOOD, GOOD, GOOD, "{"])
    refused("expected a JSON object", file, 4, Corpus.read, file)
    assert not list((tmp_path / "cache" / "grls").glob(".*")), "no half-made cache is left"


def test_the_small_set_is_what_other_tests_think(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "set")
    corpus = Corpus.read(folder)
    sizes = {name: len(read_split(folder, name, corpus)[0]) for name in ("train", "dev", "test")}
    assert sizes == {"train": 12, "dev": 2, "test": 2}
    assert len(queries()) == 16
