"""The corpus: what is read, what is refused with file and line, what comes back after writing."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from failing import names_fault
from small_data import GOOD, TRICKY, passages, write_jsonl, write_small

import grls.data.corpus
from grls.data.corpus import Corpus
from grls.data.corpus_table import COLUMNS, joined_tables, rows_in_memory, table_of
from grls.data.dataset import write_dataset
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.io.resumable import read_jsonl


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
        ({"_id": "p0", "text": "x"}, "the id 'p0' is in line 1 already"),
        (r'{"_id": "p1", "text": "x \ud800 y"}', r"the escape \\ud800 is half a character"),
        (r'{"_id": "p1", "text": "x", "metadata": {"m": ["\udfff"]}}', r"the escape \\udfff is half"),
        ('{"_id": "p1", "text": "x", "metadata": {"n": 1' + "0" * 5000 + "}}", "expected a JSON object"),
    ],
)
def test_a_malformed_passage_is_named_with_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD, "", bad])
    names_fault(problem, file, 3, Corpus.read, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    names_fault("no such file", tmp_path / "corpus.jsonl", None, Corpus.read, tmp_path)
    names_fault("no such file", tmp_path / "none", None, Corpus.read, tmp_path / "none")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
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
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(grls.data.corpus, "BATCH", 3)
    monkeypatch.setattr(grls.data.corpus_table, "BATCH", 3)
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
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = write_jsonl(tmp_path / "corpus.jsonl", [GOOD])
    assert len(Corpus.read(file)) == 1
    write_jsonl(file, [GOOD, {**GOOD, "_id": "p1"}])
    assert len(Corpus.read(file)) == 2
    write_jsonl(file, [GOOD, GOOD, GOOD])
    names_fault("the id 'p0' is in line 1 already", file, 2, Corpus.read, file)
    write_jsonl(file, [GOOD, GOOD, GOOD, "{"])
    names_fault("expected a JSON object", file, 4, Corpus.read, file)
    assert not list((tmp_path / "cache" / "grls").glob(".*")), "no half-made cache is left"


def test_numbers_are_found_among_many_and_hashed_once(monkeypatch):
    corpus = Corpus.from_passages(Passage(f"p{n}", "x") for n in range(1000))
    assert corpus.numbers(["p999", "p0", "nobody", "", "p7", "p7"]) == [999, 0, None, None, 7, 7]
    monkeypatch.setattr("grls.data.corpus.Corpus._ids", property(lambda _: pytest.fail("read again")))
    monkeypatch.setattr(Corpus, "ids", lambda _, numbers: [f"p{n}" for n in numbers])
    assert corpus.numbers(["p5"]) == [5]
    assert corpus.numbers([]) == []


def test_ids_of_one_hash_are_told_apart(monkeypatch):
    """As if all ids had the same hash."""
    monkeypatch.setattr(grls.data.corpus, "_hashes", lambda ids: np.zeros(len(ids), dtype=np.int64))
    corpus = Corpus.from_passages([Passage("a", "x"), Passage("b", "x"), Passage("c", "x")])
    assert corpus.numbers(["c", "a", "d", "b"]) == [2, 0, None, 1]


@pytest.mark.parametrize("wrong", ["12", "ab", 5, None, [1], ["p1", None]])
def test_ids_that_are_no_list_of_texts_are_refused(wrong):
    corpus = Corpus.from_passages(Passage(f"{n}", "x") for n in range(3))
    with pytest.raises(ConfigError, match=r"Corpus\.numbers: ids(\[\d\])? must be a (list of )?text"):
        corpus.numbers(wrong)
    assert corpus.numbers(np.array(["1", "7"])) == [1, None]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("call", ["ids", "passages", "with_metadata", "metadata_of", "select"])
def test_numbers_of_no_passage_are_refused(call, mapped):
    corpus = Corpus.from_passages(Passage(f"p{n}", "x") for n in range(3))
    if mapped:
        corpus = Corpus(datasets.Dataset(datasets.table.InMemoryTable(corpus.table.data)))
    for wrong in (99, 3, -1):
        with pytest.raises(
            ConfigError, match=f"no passage number {wrong}; corpus has 3 passages, numbered from 0"
        ):
            getattr(corpus, call)([0, wrong])
    for wrong in ("12", 1, None, [1.5], ["1"], [True]):
        said = rf"Corpus\.{call}: numbers(\[\d\])? must be a (list of )?whole number"
        with pytest.raises(ConfigError, match=said):
            getattr(corpus, call)(wrong)
    found = getattr(corpus, call)(np.array([2, 0]))
    assert len(found) == len(getattr(corpus, call)(range(2))) == 2
    assert (corpus[-1].id, corpus[np.int64(-3)].id) == ("p2", "p0")
    for wrong in (3, -4, "1"):
        with pytest.raises(ConfigError):
            corpus[wrong]


def test_a_corpus_in_another_process_finds_its_ids():
    """Python hashes strings differently in each process."""
    corpus = Corpus.from_passages(Passage(f"p{n}", "x") for n in range(50))
    assert corpus.numbers(["p7"]) == [7]
    ids = [f"p{n}" for n in range(50)]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(Corpus.numbers, corpus, ids).result() == list(range(50))


def test_a_table_in_memory_is_read_like_one_of_datasets():
    rows = [(f"p{n}", f"t{n}", "\N{OTTER} " * n, "{}") for n in range(11)]
    parts = [table_of(rows[start:end]) for start, end in ((0, 4), (4, 4), (4, 5), (5, 11))]
    ours = reduce(joined_tables, parts)
    theirs = datasets.Dataset(datasets.table.InMemoryTable(ours.data))
    assert ours.data.num_rows == len(ours) == 11
    for numbers in ([], [3], [10, 0, 4, 4, 5, 3], [-1, -11]):
        assert ours[numbers] == theirs[numbers]
        assert rows_in_memory(ours, [n % 11 for n in numbers])[:] == ours[numbers]
    for part in (slice(0, 0), slice(3, 6), slice(9, 40), slice(30, 40)):
        assert ours[part] == theirs[part]
    with pytest.raises(IndexError):
        ours[[11]]
    assert table_of([])[[]] == {column: [] for column in COLUMNS}


@pytest.mark.parametrize(
    ("passages", "message"),
    [
        ([Passage("a", "x"), Passage("a", "y")], "passage 1: the id 'a' is used already"),
        ([Passage(1, "x")], "passage 0: expected its id to be a string, got 1"),
        ([Passage("a", None)], "passage 0: expected its text to be a string, got None"),
        ([Passage("", "x")], "passage 0 has an empty id"),
    ],
)
def test_passages_from_python_that_no_corpus_could_hold_are_refused(passages, message):
    with pytest.raises(DataError, match=message):
        Corpus.from_passages(passages)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "no sums", "sums of another"])
def test_a_damaged_cache_is_made_anew(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = write_small(tmp_path / "set")
    (file,) = [Path(f["filename"]) for f in Corpus.read(folder).table.cache_files]
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


def test_a_corpus_that_is_replaced_with_its_size_and_date_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
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
    assert len(list((tmp_path / "cache" / "grls").iterdir())) == 1, "an earlier state is not kept"


def test_an_empty_corpus_and_half_a_character_find_nothing():
    assert Corpus.from_passages([]).numbers(["a"]) == [None]
    assert Corpus.from_passages([Passage("a", "x")]).numbers(["\ud800", "a"]) == [None, 0]
    with pytest.raises(DataError, match="expected metadata that JSON can hold"):
        Corpus.from_passages([Passage("a", "x")], metadata=[{"year": float("nan")}])


def test_what_takes_long_to_find_of_a_large_corpus_is_kept_with_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_small(tmp_path / "data")
    known = Corpus.read(folder)
    sums = known.fingerprint, known.metadata_fingerprint
    monkeypatch.setattr(grls.data.corpus_table, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    large = Corpus.read(folder)
    assert (large.fingerprint, large.metadata_fingerprint) == sums
    (facts,) = (tmp_path / "cache").rglob("facts.json")
    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "_fingerprint", lambda corpus: "found again")
        patch.setattr(Corpus, "_refuse_repeated_ids", lambda corpus, file: "found again")
        assert Corpus.read(folder).fingerprint == sums[0]
        for damage in ("", "[]", '{"sha256": "of another file", "fingerprint": "wrong"}'):
            facts.write_text(damage, encoding="utf-8")
            assert Corpus.read(folder).fingerprint == "found again"
    Corpus.read(folder).select(range(5)).write(folder / "corpus.jsonl")
    assert Corpus.read(folder).fingerprint == known.select(range(5)).fingerprint
