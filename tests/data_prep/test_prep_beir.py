import json

import pytest
from prep_helpers import fails, load, prepared, run, write_lines

from data_prep.beir import prepare
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries
from grls.io.jsonl import read_jsonl


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    passages = [{"_id": f"d{n}", "title": "", "text": f"text {n}", "metadata": {"n": n}} for n in range(30)]
    write_lines(folder / "corpus.jsonl", passages)
    write_lines(
        folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"query {n}", "metadata": {}} for n in range(22)]
    )
    _qrels(folder, "test", [f"q{n}\td{n}\t1" for n in range(20)])
    return folder


def _qrels(folder, split, lines):
    write_lines(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *lines])


def test_a_folder_is_copied_with_its_splits_and_metadata(raw, tmp_path, capsys):
    _qrels(raw, "train", ["q20\td1\t2", "q20\td2\t0", "q21\td3\t1"])
    prepare(tmp_path / "out", raw=raw)
    for name in ("corpus.jsonl", "queries.jsonl"):
        before, after = ([r for _, r in read_jsonl(folder / name)] for folder in (raw, tmp_path / "out"))
        assert before == after
    for name in ("train", "test"):
        assert (raw / "qrels" / f"{name}.tsv").read_text() == (
            tmp_path / "out/qrels" / f"{name}.tsv"
        ).read_text()
    printed = capsys.readouterr().out
    assert "2 train, 20 test" in printed
    assert "90.0% of the test gold passages" in printed  # d1 and d3 are gold in training, d2 is not relevant


def test_one_qrels_file_is_split_by_query(raw, tmp_path):
    _, splits = prepared(prepare, tmp_path / "out", raw=raw, ratios=(0.5, 0.25, 0.25))
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 10, "dev": 5, "test": 5}


def test_splits_that_exist_are_not_split_again(raw, tmp_path, capsys):
    _qrels(raw, "train", ["q20\td1\t1"])
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out", "--ratios", "[0.5,0.25,0.25]")
    assert "already has the splits train, test" in error


def test_leaks_are_refused_or_dropped(raw, tmp_path, capsys):
    queries = [r for _, r in read_jsonl(raw / "queries.jsonl")]
    queries[20]["text"] = "Query  3"
    write_lines(raw / "queries.jsonl", queries)
    _qrels(raw, "train", ["q20\td1\t1", "q21\td1\t1", "q4\td4\t1"])
    assert "stands in train and in test" in fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    prepare(tmp_path / "out", raw=raw, drop_leaks=True)
    _, splits = load(tmp_path / "out")
    assert [q.id for q in splits["train"]] == ["q21"]
    assert len(splits["test"]) == 20


def test_qrels_are_written_from_evidence_where_there_are_none(raw, tmp_path, capsys):
    (raw / "qrels" / "test.tsv").unlink()
    ids = [json.loads(line)["_id"] for line in (raw / "queries.jsonl").read_text().splitlines()]
    queries = [{"_id": q, "text": f"what is {q} ?", "evidence": ["d1", "d0"]} for q in ids]
    write_lines(raw / "queries.jsonl", [*queries, {"_id": "none", "text": "who ?"}])
    prepare(tmp_path / "out", raw=raw)
    assert f"evidence of {len(ids)} queries, 1 without" in capsys.readouterr().out
    assert read_qrels(tmp_path / "out/qrels/test.tsv") == {name: {"d1": 1, "d0": 1} for name in ids}
    prepare(tmp_path / "split", raw=raw, ratios=(0.5, 0.25, 0.25))
    assert sorted(file.stem for file in (tmp_path / "split" / "qrels").iterdir()) == ["dev", "test", "train"]
    write_lines(raw / "queries.jsonl", [{"_id": "q", "text": "what ?", "evidence": ["gone"]}])
    assert "passage id 'gone' is not in" in fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "bad")


def test_folder_over_itself_and_folder_without_qrels_are_refused(raw, tmp_path, capsys):
    assert "give another --out" in fails(prepare, capsys, "--raw", raw, "--out", raw)
    (raw / "qrels" / "test.tsv").unlink()
    assert "no qrels here" in fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")


@pytest.fixture
def pair(tmp_path):
    passages = [{"_id": n, "text": f"text {n}", "title": f"title {n}"} for n in range(5)]
    queries = [{"_id": f"q{n}", "text": f"query {n}", "evidence": [n, (n + 1) % 5]} for n in range(5)]
    files = write_lines(tmp_path / "c.jsonl", passages), write_lines(tmp_path / "q.jsonl", queries)
    return ["--corpus_file", files[0], "--queries_file", files[1], "--out", tmp_path / "out"]


def test_a_pair_of_files(pair, tmp_path, capsys):
    assert run(prepare, *pair, "--ratios", "[0.6,0.2,0.2]") == 0
    assert "3 train, 1 dev, 1 test" in capsys.readouterr().out
    texts, splits = load(tmp_path / "out")
    assert texts["3"] == "text 3"
    assert Corpus.read(tmp_path / "out")[3].title == "title 3"
    queries = {q.id: q.evidence for part in splits.values() for q in part}
    assert queries["q4"] == ("4", "0")


@pytest.mark.parametrize(("file", "record", "expected"), [
    ("q.jsonl", {"_id": "q1", "text": "query", "evidence": [7]}, "passage id '7' is not in"),
    ("q.jsonl", {"_id": "q1", "text": "query"}, "line 1: expected 'evidence' to be a non-empty list"),
    ("c.jsonl", {"_id": 1, "text": "x", "metadata": 3}, "expected 'metadata' to be a JSON object, got 3"),
    ("c.jsonl", {"text": "query"}, "line 1: expected '_id' to be a non-empty str, the key is missing"),
])  # fmt: skip
def test_malformed_pairs_are_refused(pair, tmp_path, capsys, file, record, expected):
    write_lines(tmp_path / file, [record])
    assert expected in fails(prepare, capsys, *pair)


def test_no_source_is_refused(tmp_path, capsys):
    assert "expected --raw, or --corpus_file and --queries_file." in fails(prepare, capsys, "--out", tmp_path)


def test_other_fields_of_a_pair_join_the_metadata_and_what_does_not_is_told(tmp_path, capsys):
    corpus, asked = tmp_path / "c.jsonl", tmp_path / "q.jsonl"
    write_lines(
        corpus,
        [
            {"_id": "p", "text": "x", "url": "u", "answers": 3, "metadata": {"year": 2001}},
            {"_id": "r", "text": "y", "url": "v", "year": 1, "metadata": {"year": 2, "url": "v"}},
        ],
    )
    write_lines(
        asked,
        [
            {"_id": "q", "text": "x ?", "evidence": ["p"], "answers": ["x"], "level": "hard"},
            {"_id": "s", "text": "y ?", "evidence": ["r"], "answers": "y", "title": "kept"},
        ],
    )
    prepare(tmp_path / "out", corpus_file=corpus, queries_file=asked)
    assert list(Corpus.read(tmp_path / "out").metadata()) == [
        {"year": 2001, "url": "u", "answers": 3}, {"year": 2, "url": "v"},
    ]  # fmt: skip
    first, second = read_queries(tmp_path / "out")
    assert (first.answers, json.loads(first.metadata)) == (("x",), {"answers": ["x"], "level": "hard"})
    assert (second.answers, json.loads(second.metadata)) == (("y",), {"answers": ["y"], "title": "kept"})
    told = capsys.readouterr().out.splitlines()[-3:]
    assert told == [
        "joined the metadata  answers (1), url (2) of c.jsonl",
        "left out             year (1) of c.jsonl",
        "joined the metadata  answers (2), level (1), title (1) of q.jsonl",
    ]
