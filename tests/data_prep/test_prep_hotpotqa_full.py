"""HotpotQA's official files, in their formats, small and of our own making."""

import bz2
import json
import unicodedata

import pytest
from prep_helpers import contents, fails, load, prepared

from data_prep.hotpotqa_full import ABSTRACTS, prepare
from grls.data.corpus import Corpus

RIVER = (1, "Ebble (river)", ["The Ebble is a stream.", "It flows past Alvediston."])
TOWN = ("2", "Alvediston", ["A village of 100 people.", ""])
MILL = (3, "Cat &amp; Mouse Mill", ["A mill."])
CAFE = (4, unicodedata.normalize("NFD", "Café"), [])


def abstract(name, title, sentences):
    record = {"id": name, "url": f"https://example.org/{name}", "title": title, "text": sentences}
    return {**record, "charoffset": [], "text_with_links": sentences, "charoffset_with_links": []}


def question(name, text, titles, kind="bridge", answer="100", **changes):
    facts = [[title, n] for title in titles for n in (0, 1)]
    record = {"_id": name, "question": text, "answer": answer, "type": kind, "level": "hard"}
    return {**record, "supporting_facts": facts, "context": [["Other", ["x"]]], **changes}


BRIDGE = question("b", "How many people?", ["Alvediston", "Ebble (river)"])
YES = question("c", "Same place?", ["Alvediston", "Café"], "comparison", "yes")
TRAIN = [question(f"t{n}", f"question {n}", ["Cat &amp; Mouse Mill", "Alvediston"]) for n in range(20)]


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    for place, some in (("AA/wiki_01", [MILL, CAFE]), ("AA/wiki_00", [RIVER, TOWN])):
        file = folder / ABSTRACTS / f"{place}.bz2"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bz2.compress("".join(json.dumps(abstract(*a)) + "\n" for a in some).encode()))
    (folder / "hotpot_train_v1.1.json").write_text(json.dumps(TRAIN))
    (folder / "hotpot_dev_distractor_v1.json").write_text(json.dumps([BRIDGE, YES]))
    return folder


def options(raw, tmp_path, *more):
    return ["--raw", raw, "--out", tmp_path / "out", *more]


def test_corpus_evidence_and_answers(raw, tmp_path, capsys):
    _, splits = prepared(prepare, tmp_path / "out", raw=raw, dev_share=0.1)
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 18, "dev": 2, "test": 2}
    bridge, compared = splits["test"]
    assert (bridge.id, bridge.evidence, bridge.answers) == ("b", ("1", "2"), ("100",))
    assert json.loads(bridge.metadata)["order"] == "answer"
    assert (compared.evidence, compared.answers) == (("2", "4"), ())
    stored = {"type": "comparison", "any_order": True, "level": "hard", "answer": "yes"}
    assert json.loads(compared.metadata) == stored
    assert {query.evidence for query in splits["train"]} == {("3", "2")}
    assert list(Corpus.read(tmp_path / "out")) == [
        ("1", "The Ebble is a stream. It flows past Alvediston.", "Ebble (river)"),
        ("2", "A village of 100 people.", "Alvediston"), ("3", "A mill.", "Cat & Mouse Mill"),
        ("4", "", unicodedata.normalize("NFD", "Café")),
    ]  # fmt: skip
    printed = capsys.readouterr().out
    prepare(raw, tmp_path / "other", dev_share=0.1, seed=2)
    assert contents(tmp_path / "out") != contents(tmp_path / "other")
    assert "corpus size          4 passages" in printed
    assert "order of the hops    21 answer, 1 comparison" in printed


def test_the_full_wiki_file_comes_before_the_distractor_file(raw, tmp_path):
    (raw / "hotpot_dev_fullwiki_v1.json").write_text(json.dumps([BRIDGE]))
    prepare(raw, tmp_path / "out")
    assert len(load(tmp_path / "out")[1]["test"]) == 1


def test_titles_that_the_abstracts_lack_are_named(raw, tmp_path, capsys):
    lost = question("x", "Where?", ["Nadder", "Alvediston"])
    (raw / "hotpot_dev_distractor_v1.json").write_text(json.dumps([lost, YES]))
    error = fails(prepare, capsys, *options(raw, tmp_path))
    assert f"{ABSTRACTS}: the gold passages of 1 query are not there: 'Nadder' of query 'x'." in error
    prepare(raw, tmp_path / "out", drop_missing=True)
    assert [q.id for q in load(tmp_path / "out")[1]["test"]] == ["c"]
    assert "order of the hops    20 answer, 1 comparison" in capsys.readouterr().out


def test_a_question_of_both_files_is_refused_or_left_out_of_training(raw, tmp_path, capsys):
    (raw / "hotpot_dev_distractor_v1.json").write_text(json.dumps([{**BRIDGE, "question": "Question 3"}]))
    assert "1 query text stands in two splits" in fails(prepare, capsys, *options(raw, tmp_path))
    prepare(raw, tmp_path / "out", drop_leaks=True)
    names = {q.id for queries in load(tmp_path / "out")[1].values() for q in queries}
    assert "t3" not in names
    assert len(names) == 20


@pytest.mark.parametrize(("record", "expected"), [
    ({**BRIDGE, "type": "list"}, "expected 'type' to be bridge or comparison, got 'list'"),
    ({**BRIDGE, "supporting_facts": [["a", 0], "b"]},
     "expected supporting facts as [title, sentence], got 'b'"),
    (YES, "the id 'c' is used twice"),
])  # fmt: skip
def test_malformed_questions_are_named(raw, tmp_path, capsys, record, expected):
    file = raw / "hotpot_dev_distractor_v1.json"
    file.write_text(json.dumps([YES, record]))
    assert f"{file}: record 2: {expected}" in fails(prepare, capsys, *options(raw, tmp_path))


@pytest.mark.parametrize(("change", "expected"), [
    ({"id": None}, "expected 'id' to be a number, got None"),
    ({"text": [["x"]]}, "expected 'text' to be a list of sentences, got [['x']]"),
])  # fmt: skip
def test_malformed_abstracts_are_named(raw, tmp_path, capsys, change, expected):
    file = raw / ABSTRACTS / "AB" / "wiki_00"
    file.parent.mkdir()
    file.write_text(json.dumps(abstract(8, "x", [])) + "\n" + json.dumps({**abstract(9, "y", []), **change}))
    assert f"{file}, line 2: {expected}" in fails(prepare, capsys, *options(raw, tmp_path))
    assert list(tmp_path.iterdir()) == [raw]


def test_missing_files_are_named(raw, tmp_path, capsys):
    (raw / ABSTRACTS).rename(raw / "elsewhere")
    assert f"{raw / ABSTRACTS}: no abstracts here" in fails(prepare, capsys, *options(raw, tmp_path))
    assert "dev_share" in fails(prepare, capsys, *options(raw, tmp_path, "--dev_share", "1"))
