import json

import pytest
from prep_helpers import fails, load, prepared

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
    texts, splits = prepared(prepare, tmp_path / "out", raw=raw)
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 30, "dev": 2, "test": 8}
    assert len(texts) == 41
    query = next(q for queries in splits.values() for q in queries if q.id == "s7")
    assert [texts[p] for p in query.evidence] == ["fact 7 of a kind", "a shared fact"]
    assert json.loads(query.metadata)["answer"] is True
    assert query.answers == ("yes",)
    assert next(q for queries in splits.values() for q in queries if q.id == "s8").answers == ("no",)


def test_a_question_asked_twice_stays_in_one_split(raw, tmp_path):
    (raw / "dev.json").write_text(json.dumps([_record(n + 30, question=f"is {n} odd") for n in range(30)]))
    prepare(raw, tmp_path / "out")  # load refuses a text in two splits
    assert sum(map(len, load(tmp_path / "out")[1].values())) == 60


@pytest.mark.parametrize(("text", "expected"), [
    ("[{]", "dev.json: expected a JSON document (Expecting property name enclosed in double quotes: line 1"),
    ("{}", "dev.json: expected a JSON list of questions, got dict"),
])  # fmt: skip
def test_malformed_files_are_named(raw, tmp_path, capsys, text, expected):
    (raw / "dev.json").write_text(text)
    assert expected in fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")


EVIDENCE = [
    [["no_evidence"], ["operation"]],
    [[["Otter-2", "River bank-1"]], [["Otter-2"], "no_evidence"], ["operation"]],
    [[["Lynx-7"]], [["Otter-2"]]],
]


@pytest.fixture
def paragraphs(raw):
    names = ("Otter-2", "Lynx-7", "River bank-1")
    records = {
        n: {"title": n[:-2], "section": "", "headers": [], "content": f"On  {n}.", "para_index": 1}
        for n in names
    }
    (raw / "paragraphs.json").write_text(json.dumps(records))
    questions = [_record(n, evidence=[[["operation"]]] if n == 3 else EVIDENCE) for n in range(20)]
    (raw / "strategyqa_train.json").write_text(json.dumps(questions))
    return raw / "paragraphs.json"


def test_paragraphs_named_by_the_first_annotator_who_found_any(raw, paragraphs, tmp_path, capsys):
    prepare(raw, tmp_path / "out", paragraphs)
    texts, splits = load(tmp_path / "out")
    assert texts == {"Otter-2": "On Otter-2.", "Lynx-7": "On Lynx-7.", "River_bank-1": "On River bank-1."}
    queries = [query for some in splits.values() for query in some]
    assert {query.id for query in queries} == {f"s{n}" for n in range(20)} - {"s3"}
    assert {query.evidence for query in queries} == {("Otter-2", "River_bank-1")}
    assert "1 question without an evidence paragraph" in capsys.readouterr().out


def test_paragraphs_that_the_file_lacks_are_named(raw, paragraphs, tmp_path, capsys):
    paragraphs.write_text(json.dumps({"Otter-2": {"title": "Otter", "content": "x"}}))
    options = ["--raw", raw, "--out", tmp_path / "out", "--paragraphs", paragraphs]
    error = fails(prepare, capsys, *options)
    assert f"{paragraphs}: the gold passages of 19 queries are not there: 'River_bank-1' of query " in error
    assert "of 19 queries are not there" in fails(prepare, capsys, *options, "--drop_missing", "true")
    questions = [_record(n, evidence=EVIDENCE if n else [*EVIDENCE[:1], [[["Otter-2"]]]]) for n in range(20)]
    (raw / "strategyqa_train.json").write_text(json.dumps(questions))
    prepare(raw, tmp_path / "out", paragraphs, drop_missing=True)
    assert [q.id for some in load(tmp_path / "out")[1].values() for q in some] == ["s0"]


@pytest.mark.parametrize("evidence", [None, [[["x"], 7]]])
def test_malformed_evidence_is_named(raw, paragraphs, tmp_path, capsys, evidence):
    (raw / "strategyqa_train.json").write_text(json.dumps([_record(1, evidence=evidence)]))
    options = ["--raw", raw, "--out", tmp_path / "out", "--paragraphs", paragraphs]
    assert "strategyqa_train.json: question 's1': expected 'evidence'" in fails(prepare, capsys, *options)
