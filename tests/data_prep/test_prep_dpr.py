"""DPR's release of Natural Questions, in its formats, small and of our own making."""

import csv
import gzip
import io
import json

import pytest
from prep_helpers import fails, load

from data_prep.dpr import prepare
from grls.data.corpus import Corpus
from grls.data.dataset import read_split

PASSAGES = [
    (1, 'the "Otter" is a   calm animal of the river', "Otter"),
    (2, "an otter eats fish and is 1 metre long", "Otter"),
    (3, "the lynx hunts at night, alone", 'Lynx "cat"'),
    (4, "a heron stands in the water for hours", "Heron"),
]


def question(n, *positives, key="passage_id", **changes):
    found = [{"title": "T", "text": "x", "score": 1000, key: p} for p in positives]
    record = {"dataset": "nq", "question": f"what is {n}", "answers": [f"a{n}"], "positive_ctxs": found}
    return {**record, "negative_ctxs": [], "hard_negative_ctxs": [{"title": "T", "text": "y"}], **changes}


def write_json(file, value):
    text = value if isinstance(value, str) else json.dumps(value)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def write_passages(file, rows=PASSAGES, header=("id", "text", "title")):
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows([header, *rows])
    write_json(file, stream.getvalue())


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    write_passages(folder / "psgs_w100.tsv.gz")
    train = [question(1, "1", "2"), question(2), question(3, "3", "3")]
    write_json(folder / "biencoder-nq-train.json.gz", train)
    write_json(folder / "biencoder-nq-dev.json", [question(4, 2, key="psg_id")])
    return folder


def add_test(raw, *changes):
    gold = {
        "example_id": 7, "title": "otter", "short_answers": ["fish"],
        "question": "what does an otter eat",
    }  # fmt: skip
    gold |= {"context": "The otter is a calm animal of the river; an otter eats fish and is wet."}
    lost = {**gold, "title": "Kiwi", "question": "what is a kiwi"}
    write_json(raw / "nq-test_gold_info.json.gz", {"version": 1, "data": [gold, lost, *changes]})
    answers = 'what does an  OTTER eat\t"[\'fish\', \'the ""fish""\']"\n'
    (raw / "nq-test.qa.csv").write_text(answers, encoding="utf-8")


def options(raw, tmp_path, *more):
    return ["--raw", raw, "--out", tmp_path / "out", *more]


def test_train_and_dev_with_the_first_positive_passage(raw, tmp_path, capsys):
    prepare(raw, tmp_path / "out")
    _, splits = load(tmp_path / "out")
    assert [(q.id, q.text, q.evidence, q.answers) for q in splits["train"]] == [
        ("nq-train-1", "what is 1", ("1",), ("a1",)), ("nq-train-3", "what is 3", ("3",), ("a3",)),
    ]  # fmt: skip
    assert [q.evidence for q in splits["dev"]] == [("2",)]
    assert "test" not in splits
    corpus = list(Corpus.read(tmp_path / "out"))
    assert corpus[0] == ("1", 'the "Otter" is a calm animal of the river', "Otter")
    assert corpus[2].title == 'Lynx "cat"'
    printed = capsys.readouterr().out
    assert "1 train question without a positive passage" in printed
    assert "corpus size          4 passages" in printed
    assert "queries              2 train, 1 dev" in printed


def test_all_positive_passages(raw, tmp_path):
    prepare(raw, tmp_path / "out", gold="all")
    queries, qrels = read_split(tmp_path / "out", "train")
    assert [q.evidence for q in queries] == [("1", "2"), ("3",)]
    assert qrels["nq-train-1"] == {"1": 1, "2": 1}


def test_a_test_question_gets_the_passage_most_like_its_paragraph(raw, tmp_path, capsys):
    add_test(raw)
    prepare(raw, tmp_path / "out")
    (query,) = load(tmp_path / "out")[1]["test"]
    assert (query.id, query.evidence) == ("nq-test-1", ("2",))
    assert query.answers == ("fish", 'the "fish"')
    assert "1 of 2 matched with a passage" in capsys.readouterr().out


def test_without_its_answer_file_a_test_question_has_the_short_answers(raw, tmp_path):
    add_test(raw, {"question": "who swims", "title": "Otter", "context": "something else entirely, long"})
    (raw / "nq-test.qa.csv").unlink()
    prepare(raw, tmp_path / "out")
    (query,) = load(tmp_path / "out")[1]["test"]
    assert query.answers == ("fish",)


def test_answers_without_gold_are_refused(raw, tmp_path, capsys):
    (raw / "nq-test.qa.csv").write_text("who\t['x']\n")
    error = fails(prepare, capsys, *options(raw, tmp_path))
    assert "nq-test.qa.csv: the file names no gold passages; put nq-test_gold_info.json beside it" in error


@pytest.mark.parametrize("listed", ["[1]", "__import__('os')"])
def test_malformed_answers_are_named(raw, tmp_path, capsys, listed):
    add_test(raw)
    (raw / "nq-test.qa.csv").write_text(f"who\t['x']\nwhat\t{listed}\n")
    error = fails(prepare, capsys, *options(raw, tmp_path))
    assert "nq-test.qa.csv, line 2: expected the answers as ['one', 'two'], got" in error


def test_ids_that_the_corpus_lacks_are_named(raw, tmp_path, capsys):
    write_json(raw / "biencoder-nq-dev.json", [question(4, "44"), question(5, "2")])
    error = fails(prepare, capsys, *options(raw, tmp_path))
    assert "psgs_w100.tsv.gz: the gold passages of 1 query are not there: '44' of query 'nq-dev-1'." in error
    prepare(raw, tmp_path / "out", drop_missing=True)
    assert [q.id for q in load(tmp_path / "out")[1]["dev"]] == ["nq-dev-2"]


def test_a_question_of_two_files_is_refused_or_left_out_of_training(raw, tmp_path, capsys):
    write_json(raw / "biencoder-nq-dev.json", [question(1, "2")])
    error = fails(prepare, capsys, *options(raw, tmp_path))
    assert "1 query text stands in two splits, such as 'what is 1' in train and in dev" in error
    prepare(raw, tmp_path / "out", drop_leaks=True)
    assert [q.id for q in load(tmp_path / "out")[1]["train"]] == ["nq-train-3"]


@pytest.mark.parametrize(("records", "expected"), [
    ([question(1, "1", answers=["x", 1])], "record 1: expected 'answers' to be a non-empty str, got 1"),
    ([question(1, positive_ctxs=["x"])], "record 1: expected a positive passage with passage_id or psg_id"),
])  # fmt: skip
def test_malformed_questions_are_named(raw, tmp_path, capsys, records, expected):
    write_json(raw / "biencoder-nq-dev.json", records)
    assert f"biencoder-nq-dev.json: {expected}" in fails(prepare, capsys, *options(raw, tmp_path))
