"""Queries, qrels and whole data sets: what is refused with file and line, what is gold, what is written."""

import json
from pathlib import Path
from typing import Any

import pytest
from failing import names_fault
from small_data import GOOD, TRICKY, queries, write_jsonl, write_small

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_qrels, read_queries, read_split, write_dataset
from grls.data.types import Passage, Query
from grls.errors import DataError


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
        ({"_id": "q1", "text": "x", "metadata": {"proofs": None}}, "metadata.proofs to be a list of lists"),
        ({"_id": "q1", "text": "x", "metadata": {"proofs": ["p0"]}}, "metadata.proofs to be a list of lists"),
        (
            {"_id": "q1", "text": "x", "metadata": {"any_order": "true"}},
            "metadata.any_order to be true or false",
        ),
        ({"_id": "q1", "text": "x", "any_order": True}, "write it into them"),
        ({"_id": "q1", "text": "x", "metadata": []}, "expected 'metadata' to be a JSON object"),
        ({"_id": "q0", "text": "x"}, "the query id 'q0' is used twice"),
        (b'{"_id": "q1", "text": "\xff"}', "expected UTF-8 text"),
        (r'{"_id": "q1", "text": "\uDC00\uD800"}', "half a character"),
        ('{"_id": "q1", "text": "x", "n": ' + "[" * 99999 + "]" * 99999 + "}", "expected a JSON object"),
    ],
)
def test_a_malformed_query_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "is it ?"}, bad])
    names_fault(problem, file, 2, read_queries, tmp_path)


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
    names_fault("expected three tab-separated columns", file, 3, read_qrels, file)


@pytest.mark.parametrize("grade", ["1000001", "-3000000000"])
def test_a_grade_that_no_measure_can_count_is_named_with_file_and_line(tmp_path: Path, grade: str) -> None:
    file = write_jsonl(
        tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", "q0\tp0\t1000000", f"q0\tp1\t{grade}"]
    )
    names_fault(f"expected a grade between -1,000,000 and 1,000,000, got {grade}", file, 3, read_qrels, file)


def test_qrels_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", b"q\xe9\tp0\t1"])
    names_fault("expected UTF-8", file, 2, read_qrels, file)


def test_qrels_of_beir_are_read(tmp_path: Path) -> None:
    """With and without header, negative grades, Windows line ends, a blank last line."""
    file = tmp_path / "test.tsv"
    file.write_bytes(b"query-id\tcorpus-id\tscore\r\nq0\tp0\t2\r\nq0\tp1\t-1\r\nq1\tp0\t0\r\n\r\n")
    assert read_qrels(file) == {"q0": {"p0": 2, "p1": -1}, "q1": {"p0": 0}}
    file.write_text("q0\tp0\t1\n")
    assert read_qrels(file) == {"q0": {"p0": 1}}


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    names_fault("no such file", tmp_path / "queries.jsonl", None, read_queries, tmp_path)
    names_fault("no such file", tmp_path / "x.tsv", None, read_qrels, tmp_path / "x.tsv")
    for text in ("", "\n\n"):
        (tmp_path / "queries.jsonl").write_text(text)
        names_fault("the file holds no query", tmp_path / "queries.jsonl", None, read_queries, tmp_path)


def split(tmp_path: Path, evidence: list[str], qrel: tuple[str, str]) -> Path:
    write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    query = {"_id": "q0", "text": "is it ?", "evidence": evidence}
    write_jsonl(tmp_path / "queries.jsonl", [query, {"_id": "q9", "text": "of no split"}])
    write_jsonl(tmp_path / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "\t".join([*qrel, "1"])])
    return tmp_path


def test_unknown_ids_are_refused_and_named(tmp_path: Path) -> None:
    folder = split(tmp_path, [], ("q1", "p0"))
    names_fault("query id 'q1' is in no line", folder / "qrels/test.tsv", None, read_split, folder, "test")
    folder = split(tmp_path, [], ("q0", "p1"))
    corpus = Corpus.read(folder)
    problem = "qrel of query 'q0': passage id 'p1' is not in .*corpus.jsonl"
    names_fault(problem, folder / "qrels/test.tsv", None, read_split, folder, "test", corpus)
    folder = split(tmp_path, ["p0", "p2"], ("q0", "p0"))
    problem = "evidence of query 'q0': passage id 'p2' is not in .*corpus.jsonl"
    names_fault(problem, folder / "queries.jsonl", None, read_split, folder, "test", corpus)


def test_missing_qrels_name_the_command_that_writes_them_from_evidence(tmp_path: Path) -> None:
    folder = split(tmp_path, ["p0"], ("q0", "p0"))
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"1 of 2 queries have `evidence`.*`grls prepare beir --raw"):
        read_split(folder, "test")
    write_jsonl(folder / "queries.jsonl", [{"_id": "q0", "text": "is it ?"}])
    with pytest.raises(DataError, match=r"no `evidence` either; expected BEIR qrels \(query-id, corpus-id"):
        read_split(folder, "test")


def test_a_split_holds_its_own_queries(tmp_path: Path) -> None:
    folder = split(tmp_path, ["p0"], ("q0", "p0"))
    found, qrels = read_split(folder, "test", Corpus.read(folder))
    assert found == [Query("q0", "is it ?", ("p0",))]
    assert qrels == {"q0": {"p0": 1}}


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


def test_gold_is_what_the_qrels_grade_in_the_order_of_the_evidence() -> None:
    query = Query("q", "is it ?", ("c", "x", "a", "c"))
    assert gold_passages(query, {"q": {"a": 1, "b": 2, "c": 1, "d": 0, "x": 0}}) == ["c", "a", "b"]
    assert gold_passages(query, {"q": {"d": 0}}) == []
    assert gold_passages(query, {"r": {"d": 1}}) == ["c", "x", "a"]
    assert gold_passages(Query("q", "is it ?"), {"q": {"b": 1, "a": 1}}) == ["b", "a"]


def test_the_small_set_is_what_other_tests_think(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "set")
    corpus = Corpus.read(folder)
    sizes = {name: len(read_split(folder, name, corpus)[0]) for name in ("train", "dev", "test")}
    assert sizes == {"train": 12, "dev": 2, "test": 2}
    assert len(queries()) == 16


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"_id": "a", "text": "x", "text": "y"}', "line 2: .*the key 'text' occurs twice"),
        ('{"_id": "a", "text": "x", "metadata": {"y": NaN}}', "line 2: .*NaN is no JSON number"),
        ('{"_id": "a", "text": "x", "metadata": {"y": -Infinity}}', "line 2: .*-Infinity is no JSON number"),
        ('{"_id": "a", "text": "x", "metadata": {"y": 1e999}}', "line 2: .*1e999 is too large"),
        ('{"_id": "DONE", "text": "x"}', "the passage id 'DONE' is reserved"),
    ],
)
def test_json_that_says_two_things_or_none_is_refused(line, message, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "p", "text": "x"}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        Corpus.read(tmp_path)


def test_a_pair_with_two_grades_is_refused_and_one_that_is_repeated_is_not(tmp_path):
    file = tmp_path / "test.tsv"
    file.write_text("query-id\tcorpus-id\tscore\nq\tp\t1\nq\tp\t1\n")
    assert read_qrels(file) == {"q": {"p": 1}}
    file.write_text("query-id\tcorpus-id\tscore\nq\tp\t1\nq\tp\t0\n")
    with pytest.raises(
        DataError, match="line 3: query 'q' and passage 'p' have the grade 1 already, and here 0"
    ):
        read_qrels(file)


@pytest.mark.parametrize("bad", ["q\ta\t1\nvictim", "q\r", "a\tb"])
def test_ids_that_would_forge_a_line_of_the_qrels_are_refused(bad, tmp_path):
    passages = [Passage("a", "x")]
    for qrels in ({bad: {"a": 1}}, {"q": {bad: 1}}):
        with pytest.raises(DataError, match="holds a tab or a line end, which qrels cannot carry"):
            write_dataset(tmp_path / "out", passages, [Query("q", "x ?")], {"test": qrels})
        assert not (tmp_path / "out").exists()
