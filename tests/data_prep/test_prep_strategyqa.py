import json

import pytest
from prep_helpers import contents, fails, load, real

from data_prep.strategyqa import prepare


def _record(n, **changes):
    facts = [f"fact {n} of a kind", "a shared  fact"]
    record = {"qid": f"s{n}", "question": f"Is {n} odd?", "answer": bool(n % 2), "facts": facts}
    return {**record, "decomposition": ["What is it?", "Is #1 odd?"], **changes}


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps([_record(n) for n in range(30)]))
    (folder / "dev.json").write_text(json.dumps([_record(n) for n in range(30, 40)]))
    return folder


def test_split_and_corpus(raw, tmp_path):
    prepare(raw, tmp_path / "out")
    texts, splits = load(tmp_path / "out")
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 30, "dev": 2, "test": 8}
    assert len(texts) == 41
    query = next(q for queries in splits.values() for q in queries if q.id == "s7")
    assert [texts[p] for p in query.evidence] == ["fact 7 of a kind", "a shared fact"]
    assert json.loads(query.metadata)["answer"] is True


def test_deterministic_for_a_seed(raw, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        prepare(raw, tmp_path / name, seed=seed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one") != contents(tmp_path / "three")


def test_a_question_asked_twice_stays_in_one_split(raw, tmp_path):
    (raw / "dev.json").write_text(json.dumps([_record(n + 30, question=f"is {n} odd") for n in range(30)]))
    prepare(raw, tmp_path / "out")  # load refuses a text in two splits
    assert sum(map(len, load(tmp_path / "out")[1].values())) == 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[{]",
            "dev.json: expected a JSON document (Expecting property name enclosed in double quotes: line 1",
        ),
        ("{}", "dev.json: expected a JSON list of questions, got dict"),
        ("[3]", "dev.json: record 1: expected a JSON object"),
        (
            json.dumps([_record(1), _record(2, facts=[])]),
            "dev.json: record 2: expected 'facts' to be a non-empty list",
        ),
        (
            json.dumps([_record(1, facts=["x", " "])]),
            "record 1: expected 'facts' to be a non-empty str, got ' '",
        ),
        (
            json.dumps([_record(1, answer="yes")]),
            "record 1: expected 'answer' to be a non-empty bool, got 'yes'",
        ),
    ],
)
def test_malformed_files_are_named(raw, tmp_path, capsys, text, expected):
    (raw / "dev.json").write_text(text)
    assert expected in fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_file(tmp_path, capsys):
    error = fails(prepare, capsys, "--raw", tmp_path, "--out", tmp_path / "out")
    assert f"{tmp_path / 'train.json'}: no such file" in error


def test_real_data(tmp_path):
    prepare(real("strategyqa"), tmp_path / "out")
    texts, splits = load(tmp_path / "out")
    assert len(texts) == 6106
    assert {name: len(queries) for name, queries in splits.items()} == {
        "train": 1718,
        "dev": 114,
        "test": 458,
    }
