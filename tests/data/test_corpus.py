"""Corpus, queries, qrels: what is read, what is refused with file and line, what comes back after writing."""

import json
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import names_fault, raises
from fixture_types import Patch
from small_data import GOOD, TRICKY, passages, write_jsonl, write_small

import grls.data.corpus
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_qrels, read_queries, read_split, write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError
from grls.io.jsonl import read_jsonl


@pytest.mark.parametrize(("bad", "problem"), [
    ('{"_id": "p1", ', "expected a JSON object"),
    ({"text": "x"}, "expected '_id' to be a non-empty string, the key is missing"),
    ({"_id": "p1", "text": "x", "metadata": "m"}, "expected metadata to be an object, got 'm'"),
    (b'{"_id": "p1", "text": "caf\xe9"}', "expected UTF-8 text"),
    ({"_id": "p0", "text": "x"}, "the id 'p0' is in line 1 already"),
    (r'{"_id": "p1", "text": "x \ud800 y"}', r"the escape \\ud800 is half a character"),
    ('{"_id": "p1", "text": "x", "metadata": {"n": 1' + "0" * 5000 + "}}", "expected a JSON object"),
])  # fmt: skip
def test_a_malformed_passage_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD, "", bad])
    names_fault(problem, file, 3, Corpus.read, tmp_path)


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    names_fault("no such file", tmp_path / "corpus.jsonl", None, Corpus.read, tmp_path)
    names_fault("no such file", tmp_path / "none", None, Corpus.read, tmp_path / "none")
    for text in ("", "\n\n"):
        (tmp_path / "corpus.jsonl").write_text(text)
        names_fault("the corpus is empty", tmp_path / "corpus.jsonl", None, Corpus.read, tmp_path)


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
        of(Passage("b", "y"), Passage("a", "x")), of(Passage("a", "x"), Passage("c", "y")),
        of(Passage("a", "x", "t"), Passage("b", "y")), of(Passage("a", "x"), Passage("b", "z")),
        of(Passage("a", "x")),
    ]  # fmt: skip
    assert len({base, *others}) == 6


def test_a_large_corpus_is_mapped_from_disk_and_the_same(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = write_small(tmp_path / "set")
    small = Corpus.read(folder)
    assert not isinstance(small.table.parts[0], Path)
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(grls.data.corpus, "BATCH", 3)
    monkeypatch.setattr(grls.data.corpus_table, "BATCH", 3)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    large = Corpus.read(folder)
    (cached,) = large.table.parts
    assert isinstance(cached, Path)
    assert pickle.loads(pickle.dumps(large.table)).parts == (cached,)
    assert cached.is_relative_to(tmp_path / "cache")
    assert list(large) == list(small) == passages()
    assert large.fingerprint == small.fingerprint
    ids = [p.id for p in passages()]
    assert large.numbers([*ids, "x"]) == [*range(len(ids)), None]
    made = cached.stat().st_mtime_ns
    assert list(Corpus.read(folder)) == list(small)
    assert cached.stat().st_mtime_ns == made, "the cache is used"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Where every corpus is mapped from."""
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_follows_a_change_of_the_file(tmp_path: Path, cache: Path) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    assert len(Corpus.read(file)) == 1
    write_jsonl(file, [GOOD, {**GOOD, "_id": "p1"}])
    assert len(Corpus.read(file)) == 2
    write_jsonl(file, [GOOD, GOOD, GOOD])
    names_fault("the id 'p0' is in line 1 already", file, 2, Corpus.read, file)
    write_jsonl(file, [GOOD, GOOD, GOOD, "{"])
    names_fault("expected a JSON object", file, 4, Corpus.read, file)
    assert not list((cache / "grls").glob(".*")), "no half-made cache is left"


def test_the_cache_knows_the_metadata(tmp_path: Path, cache: Path) -> None:
    known = []
    for year in (1999, 2000):
        file = write_jsonl(tmp_path / f"{year}.jsonl", [GOOD | {"metadata": {"year": year}}])
        made, cached = Corpus.read(file), Corpus.read(file)
        computed = Corpus(cached.table).metadata_fingerprint
        assert made.metadata_fingerprint == cached.metadata_fingerprint == computed
        known.append((cached.fingerprint, computed))
    (texts, first), (same, second) = known
    assert texts == same
    assert first != second


def test_ids_of_one_hash_are_told_apart(monkeypatch):
    """As if all ids had the same hash."""
    monkeypatch.setattr(grls.data.corpus, "hash", lambda name: 0, raising=False)
    corpus = Corpus.from_passages([Passage("a", "x"), Passage("b", "x"), Passage("c", "x")])
    assert corpus.numbers(["c", "a", "d", "b"]) == [2, 0, None, 1]


@pytest.mark.parametrize("wrong", ["12", "ab", 5, None, [1], ["p1", None]])
def test_ids_that_are_no_list_of_texts_are_refused(wrong):
    corpus = Corpus.from_passages(Passage(f"{n}", "x") for n in range(3))
    raises(ConfigError, r"Corpus\.numbers: ids(\[\d\])? must be a (list of )?text", corpus.numbers, wrong)
    assert corpus.numbers(np.array(["1", "7"])) == [1, None]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("call", ["ids", "passages", "with_metadata", "metadata_of", "select"])
def test_numbers_of_no_passage_are_refused(call, mapped, tmp_path, cache):
    corpus = Corpus.from_passages(Passage(f"p{n}", "x") for n in range(3))
    if mapped:
        corpus.write(tmp_path / "corpus.jsonl")
        corpus = Corpus(Corpus.read(tmp_path).table)
        assert (corpus.table.parts[0]).is_relative_to(cache)
    for wrong in (99, 3, -1):
        with pytest.raises(
            ConfigError, match=rf"Corpus\.{call}: there is no passage number {wrong}; corpus has 3 passages,"
        ):
            getattr(corpus, call)([0, wrong])
    for wrong in ("12", 1, None, [1.5], ["1"], [True]):
        said = rf"Corpus\.{call}: numbers(\[\d\])? must be a (list of )?whole number"
        raises(ConfigError, said, getattr(corpus, call), wrong)
    found = getattr(corpus, call)(np.array([2, 0]))
    assert len(found) == len(getattr(corpus, call)(range(2))) == 2
    assert (corpus[-1].id, corpus[np.int64(-3)].id) == ("p2", "p0")
    for wrong, call in ((3, "3"), (-4, "-4"), ("1", "number")):
        raises(ConfigError, rf"^corpus\[{call}\]: .*{wrong}", corpus.__getitem__, wrong)


def test_a_corpus_in_another_process_finds_its_ids():
    """Python hashes strings differently in each process."""
    corpus = Corpus.from_passages(Passage(f"p{n}", "x") for n in range(50))
    assert corpus.numbers(["p7"]) == [7]
    ids = [f"p{n}" for n in range(50)]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(Corpus.numbers, corpus, ids).result() == list(range(50))


@pytest.mark.parametrize(("passages", "message"), [
    ([Passage("a", "x"), Passage("a", "y")], "passage 1: the id 'a' is used already"),
    ([Passage(1, "x")], "passage 0: expected its id to be a string, got 1"),
    ([Passage("a", None)], "passage 0: expected its text to be a string, got None"),
    ([Passage("", "x")], "passage 0 has an empty id"),
])  # fmt: skip
def test_passages_from_python_that_no_corpus_could_hold_are_refused(passages, message):
    raises(DataError, message, Corpus.from_passages, passages)


def test_what_takes_long_to_find_is_kept_with_the_cache(tmp_path: Path, cache: Path) -> None:
    folder = write_small(tmp_path / "data")
    found = Corpus.read(folder).fingerprint
    (kept,) = cache.rglob("cache.json")
    kept.write_text(kept.read_text().replace(found, "kept"))
    assert Corpus.read(folder).fingerprint == "kept"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "no sums", "sums of another"])
@pytest.mark.usefixtures("cache")
def test_a_damaged_cache_is_made_anew(damage: str, tmp_path: Path) -> None:
    folder = write_small(tmp_path / "set")
    (file,) = Corpus.read(folder).table.parts
    assert isinstance(file, Path)
    raw, sums = file.read_bytes(), file.with_name("cache.json")
    if damage == "flip":
        place = raw.index(b"otter")
        file.write_bytes(raw[:place] + b"u" + raw[place + 1 :])
    elif damage == "gone":
        file.unlink()
    elif damage == "no sums":
        sums.unlink()
    elif damage == "sums of another":
        sums.write_text('{"state": []}')
    else:
        file.write_bytes(raw[: len(raw) // 2] if damage == "cut" else b"")
    assert list(Corpus.read(folder)) == passages()
    assert file.read_bytes() == raw


def test_a_corpus_that_is_replaced_with_its_size_and_date_is_read_anew(tmp_path: Path, cache: Path) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    state = file.stat()
    assert Corpus.read(file)[0].text == "the otter is calm ."
    other = write_jsonl(tmp_path / "other", [{**GOOD, "text": "the otter is gone ."}])
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(file)
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert Corpus.read(file)[0].text == "the otter is gone ."
    text = file.read_text()
    file.write_text(text.replace("gone", "away"))  # in its place
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert Corpus.read(file)[0].text == "the otter is away ."
    assert len(list((cache / "grls").iterdir())) == 1, "an earlier state is not kept"


def test_an_empty_corpus_and_half_a_character_find_nothing():
    assert Corpus.from_passages([]).numbers(["a"]) == [None]
    assert Corpus.from_passages([Passage("a", "x")]).numbers(["\ud800", "a"]) == [None, 0]
    with pytest.raises(DataError, match="expected metadata that JSON can hold"):
        Corpus.from_passages([Passage("a", "x")], metadata=[{"year": float("nan")}])


@pytest.mark.parametrize(("bad", "problem"), [
    ("{", "expected a JSON object"),
    ({"_id": "q1", "text": "  "}, "the query text is empty"),
    ({"_id": "q1", "text": "x", "evidence": "p0"}, "expected evidence to be a list of strings"),
    ({"_id": "q1", "text": "x", "metadata": {"answers": 3}}, "metadata.answers to be a list of strings"),
    ({"_id": "q1", "text": "x", "metadata": {"proofs": ["p0"]}}, "metadata.proofs to be a list of lists"),
    ({"_id": "q1", "text": "x", "metadata": {"any_order": "true"}}, "metadata.any_order to be true or false"),
    ({"_id": "q0", "text": "x"}, "the query id 'q0' is used twice"),
    ('{"_id": "q1", "text": "x", "n": ' + "[" * 99999 + "]" * 99999 + "}", "expected a JSON object"),
])  # fmt: skip
def test_a_malformed_query_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "is it ?"}, bad])
    names_fault(problem, file, 2, read_queries, tmp_path)


@pytest.mark.parametrize("bad", [
    "q0\tp0\thigh",
    "q0\tp0\t²",
    f"q0\tp0\t{'1' * 5000}",
])  # fmt: skip
def test_a_malformed_qrel_is_named_with_file_and_line(tmp_path: Path, bad: str) -> None:
    file = write_jsonl(tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", "q0\tp0\t1", bad])
    names_fault("expected three tab-separated columns", file, 3, read_qrels, file)


@pytest.mark.parametrize("grade", ["1000001", "-3000000000"])
def test_a_grade_that_no_measure_can_count_is_named_with_file_and_line(tmp_path: Path, grade: str) -> None:
    file = write_jsonl(
        tmp_path / "test.tsv", ["query-id\tcorpus-id\tscore", "q0\tp0\t1000000", f"q0\tp1\t{grade}"]
    )
    names_fault(f"expected a grade between -1,000,000 and 1,000,000, got {grade}", file, 3, read_qrels, file)


def test_qrels_of_beir_are_read(tmp_path: Path) -> None:
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


def test_unknown_ids_are_told_once_and_refused_where_no_other_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = split(tmp_path, [], ("q1", "p0"))
    file = folder / "qrels/test.tsv"
    names_fault("'q1' is in no line of queries.jsonl", file, None, read_split, folder, "test")
    folder = split(tmp_path, [], ("q0", "p1"))
    corpus = Corpus.read(folder)
    names_fault("query 'q0': the passage id 'p1' is not in", file, None, read_split, folder, "test", corpus)
    folder = split(tmp_path, ["p0", "p2"], ("q0", "p0"))
    file.write_text(file.read_text() + "q9\tp1\t1\nq1\tp0\t1\n")
    for _ in range(2):
        queries, qrels = read_split(folder, "test", corpus)
        assert ([q.id for q in queries], qrels) == (["q0", "q9"], {"q0": {"p0": 1}, "q9": {"p1": 1}})
    first, second = (record.getMessage() for record in caplog.records)
    assert "test.tsv: 1 judged query is in no line of queries.jsonl, such as 'q1', and left out" in first
    assert "test.tsv: 2 judged passages are not in " in second
    assert second.endswith("such as 'p1' of the query 'q9': no search finds such a passage.")
    queries, qrels = read_split(folder, "test", corpus, known=True)
    assert ([(q.id, q.evidence) for q in queries], qrels) == ([("q0", ("p0",))], {"q0": {"p0": 1}})


def test_missing_qrels_name_the_command_that_writes_them_from_evidence(tmp_path: Path) -> None:
    folder = split(tmp_path, ["p0"], ("q0", "p0"))
    (folder / "qrels" / "test.tsv").unlink()
    raises(DataError, r"1 of 2 queries have `evidence`.*`grls prepare beir --raw", read_split, folder, "test")
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
        Query("q", "wo? 水獺", ("d", "a"), ("yes", "no"), '{"proofs": [["a"]]}'), Query("r", "is it ?"),
    ]  # fmt: skip
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


def test_a_pair_with_two_grades_is_refused_and_one_that_is_repeated_is_not(tmp_path):
    file = tmp_path / "test.tsv"
    file.write_text("query-id\tcorpus-id\tscore\nq\tp\t1\nq\tp\t1\n")
    assert read_qrels(file) == {"q": {"p": 1}}
    file.write_text("query-id\tcorpus-id\tscore\nq\tp\t1\nq\tp\t0\n")
    raises(
        DataError, "line 3: query 'q' and passage 'p' have the grade 1 already, and here 0", read_qrels, file
    )


@pytest.mark.parametrize("bad", ["q\ta\t1\nvictim", "q\r", "a\tb"])
def test_ids_that_would_forge_a_line_of_the_qrels_are_refused(bad, tmp_path):
    passages = [Passage("a", "x")]
    for qrels in ({bad: {"a": 1}}, {"q": {bad: 1}}):
        with pytest.raises(DataError, match="holds a tab or a line end, which qrels cannot carry"):
            write_dataset(tmp_path / "out", passages, [Query("q", "x ?")], {"test": qrels})
        assert not (tmp_path / "out").exists()
