import json

import pytest
from prep_helpers import fails, load, prepared, real, write_lines

from data_prep import common
from data_prep.entailmentbank import options_of, prepare


def _context(sentences):
    return " ".join(f"sent{n}: {s}" for n, s in enumerate(sentences, 1))


def _angles(name, question, answer, sentences):
    text = (
        f"$proof$ ; $question$ = {question} ; $answer$ = {answer} ; $hypothesis$ = so it is ; "
        f"$context$ = {_context(sentences)}"
    )
    return {"id": name, "input": text, "output": "$proof$ = "}


def _plain(name, question, answer, sentences):
    triples = {f"sent{n}": s for n, s in enumerate(sentences, 1)}
    return {"id": name, "question": question, "answer": answer, "meta": {"triples": triples}}


TRAIN = [
    _angles("q1", "Why does tea cool?", "heat leaves it", ["tea is a drink", "a drink / soup is warm"]),
    _angles("q1", "Why does tea cool?", "air is cold", ["air is cold", "tea is a drink"]),
    _angles("q2", "What is rain?", "water", ["rain is water"]),
]
DEV = [_plain("q3", "What is fog?", "a cloud", ["fog is a cloud", "a cloud is water"])]
TEST = [_plain("q4", "What is  RAIN?", "Water", ["rain is water", "ice is water"])]


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    for task, more in (("task_1", []), ("task_3", ["a stone is hard"])):
        for file, records in (("train.angles", TRAIN), ("dev", DEV), ("test", TEST)):
            write_lines(folder / task / f"{file}.jsonl", [_with_context(r, more) for r in records])
    bank = {"x:0": "DUMMY", "x:1": "Rain is water .", "x:2": "a drink; soup is warm", "x:3": "snow is white"}
    (folder / "worldtree_corpus_sentences_extended.json").write_text(json.dumps(bank))
    return folder


def _with_context(record, more):
    record = json.loads(json.dumps(record))
    for sentence in more:
        if "input" in record:
            record["input"] += f" sent9: {sentence}"
        else:
            record["meta"]["triples"]["sent9"] = sentence
    return record


@pytest.fixture
def worldtree(tmp_path):
    folder = tmp_path / "worldtree"
    (folder).mkdir()
    (folder / "facts.tsv").write_text("f1\tsnow is white\nf2\ta tree is a plant\n")
    question = "What is fog made of? (A) Stone (B) Water"
    records = [
        {"id": "w1", "split": "train", "question": question, "answer_key": "B", "explanation": ["f2", "f1"]},
        {"id": "q4", "split": "train", "question": "Other? (A) x", "answer_key": "A", "explanation": ["f2"]},
        {
            "id": "w3",
            "split": "train",
            "question": "what is FOG (1) x",
            "answer_key": "1",
            "explanation": ["f2"],
        },
        {"id": "w4", "split": "test", "question": "Unused? (A) x", "answer_key": "A", "explanation": ["f2"]},
        {"id": "w5", "split": "train", "question": "No facts? (A) x", "answer_key": "A", "explanation": []},
    ]
    write_lines(folder / "questions.nomercury.jsonl", records)
    return folder


def test_leaves_are_evidence_in_the_order_of_the_file(raw, tmp_path, capsys):
    prepare(raw, tmp_path / "out")
    texts, splits = load(tmp_path / "out")
    printed = capsys.readouterr().out
    assert "union                9 passages" in printed
    assert "1 training query" in printed  # q2 is a query of the test set
    assert sorted(texts.values()) == [
        "a cloud is water", "a drink / soup is warm", "a stone is hard", "air is cold", "fog is a cloud",
        "ice is water", "rain is water", "snow is white", "tea is a drink",
    ]  # fmt: skip
    train = [(q.id, q.text, [texts[p] for p in q.evidence]) for q in splits["train"]]
    assert train == [
        ("q1", "Why does tea cool? heat leaves it", ["tea is a drink", "a drink / soup is warm"]),
        ("q1-2", "Why does tea cool? air is cold", ["air is cold", "tea is a drink"]),
    ]
    assert [[texts[p] for p in q.evidence] for q in splits["test"]] == [["rain is water", "ice is water"]]


def test_worldtree_gives_training_pairs_and_leaks_nothing(raw, worldtree, tmp_path):
    texts, splits = prepared(prepare, tmp_path / "out", raw=raw, worldtree=worldtree)
    extra = [q for q in splits["train"] if json.loads(q.metadata)["source"] == "worldtree"]
    assert [(q.id, q.text) for q in extra] == [("worldtree-w1", "What is fog made of? Water")]
    assert [texts[p] for p in extra[0].evidence] == ["a tree is a plant", "snow is white"]
    assert len(texts) == 10
    assert [len(splits[n]) for n in ("train", "dev", "test")] == [3, 1, 1]


@pytest.mark.parametrize(("text", "expected"), [
    ("Is (A) it? (A) the one (B) the (x) two", ("Is (A) it?", {"A": "the one", "B": "the (x) two"})),
    ("How many? (1) one (2) two (3) three", ("How many?", {"1": "one", "2": "two", "3": "three"})),
    ("No options?", ("No options?", {})),
])  # fmt: skip
def test_options(text, expected):
    assert options_of(text) == expected


@pytest.mark.parametrize(("file", "line", "expected"), [
    ("task_1/train.angles.jsonl", '{"id": "a", "input": "x"}', "line 2: expected 'input' to hold"),
    ("task_1/dev.jsonl", '{"id": "a", "question": "x", "meta": {}}', "line 2: expected 'meta'"),
])  # fmt: skip
def test_malformed_lines_are_named(raw, tmp_path, capsys, file, line, expected):
    first = (raw / file).read_text().splitlines()[0]
    write_lines(raw / file, [first, line])
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw / file}, {expected}" in error


def test_missing_files_and_unknown_facts_are_named(raw, worldtree, tmp_path, capsys):
    options = ["--raw", raw, "--out", tmp_path / "out", "--worldtree", worldtree]
    (worldtree / "facts.tsv").write_text("f1\tsnow is white\n")
    assert "line 1: the fact 'f2' stands in no line" in fails(prepare, capsys, *options)
    (worldtree / "facts.tsv").write_text("f1\tsnow is white\nf2\n")
    assert "facts.tsv, line 2: expected fact id and sentence" in fails(prepare, capsys, *options)


def test_real_data(tmp_path, capsys):
    raw, worldtree = real("entailment_bank"), real("worldtree_v2")
    prepare(raw, tmp_path / "out", worldtree=worldtree)
    # The data's README counts 11,781 with a normalisation that it does not spell out; ours joins three more.
    assert "11,778 passages" in capsys.readouterr().out
    texts, splits = load(tmp_path / "out")
    assert [len(splits[n]) for n in ("dev", "test")] == [187, 340]
    own = [q for q in splits["train"] if json.loads(q.metadata)["source"] == "entailmentbank"]
    assert len(own) == 1313 - 1  # one stands word for word in test
    assert "dummy" not in {common.plain_words(text) for text in texts.values()}
    asked = {
        common.plain_words(json.loads(q.metadata)["question"]) for n in ("dev", "test") for q in splits[n]
    }
    extra = [q for q in splits["train"] if q.id.startswith("worldtree-")]
    assert extra
    assert not asked & {common.plain_words(json.loads(q.metadata)["question"]) for q in extra}
    ids = {q.id for n in ("dev", "test") for q in splits[n]}
    assert not ids & {q.id.removeprefix("worldtree-") for q in extra}
