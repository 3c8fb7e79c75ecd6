"""HotpotQA in rows, and the order of its hops."""

import csv
import json
from collections import Counter

import pytest
from prep_helpers import fails, prepared, write_lines

from data_prep.hops import bare_title, describe, order, read
from data_prep.hotpotqa import COLUMNS, CORPUS, QUESTIONS, prepare

RIVER = {"title": "Ebble (river)", "text": "The Ebble is a river that flows past  Alvediston."}
TOWN = {"title": "Alvediston", "text": "Alvediston is a village of 100 people."}
MILL = {"title": "Cat &amp; Mouse Mill", "text": "A mill made of stone."}
BRIDGE = "How many people live in the village that the river flows past?"


def write_rows(file, rows, columns=COLUMNS):
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    write_lines(folder / CORPUS, [RIVER, TOWN, MILL])
    write_rows(
        folder / QUESTIONS,
        [
            ("b", "bridge", BRIDGE, "Alvediston | Ebble (river)"),
            ("c", "comparison", "Which is larger?", "Alvediston | Ebble (river)"),
            ("u", "bridge", "What is it made of?", "Alvediston | Cat &amp; Mouse Mill"),
            ("b", "bridge", BRIDGE, "Alvediston | Ebble (river)"),
        ],
    )
    return folder


def test_evidence_is_in_retrieval_order(raw, tmp_path, capsys):
    texts, splits = prepared(prepare, tmp_path / "out", raw=raw, ratios=(0, 0, 1))
    assert len(texts) == 3
    found = {q.id: ([texts[p] for p in q.evidence], json.loads(q.metadata)) for q in splits["test"]}
    river, town = "The Ebble is a river that flows past Alvediston.", TOWN["text"]
    assert found == {
        "b": ([river, town], {"type": "bridge", "order": "link"}),
        "c": ([town, river], {"type": "comparison", "any_order": True}),
        "u": ([town, MILL["text"]], {"type": "bridge", "any_order": True}),
    }
    assert "order of the hops    1 link, 1 comparison, 1 undecided" in capsys.readouterr().out
    corpus = (tmp_path / "out" / "corpus.jsonl").read_text()
    assert '"Cat & Mouse Mill"' in corpus


@pytest.mark.parametrize(("row", "expected"), [
    (("x", "list", "Who?", "Alvediston | Ebble (river)"),
     "expected 'question_type' to be bridge or comparison, got 'list'"),
    (("x", "bridge", "Who?", "Alvediston"),
     "expected 'gold_titles' to be two titles around ' | ', got 'Alvediston'"),
    (("x", "bridge", "Who?", "Alvediston | Nadder"),
     f"the gold title 'Nadder' stands in no line of {CORPUS}"),
    (("a", "bridge", "Another?", "Alvediston | Ebble (river)"),
     "the question 'a' differs from its earlier row"),
])  # fmt: skip
def test_malformed_rows_are_named(raw, tmp_path, capsys, row, expected):
    write_rows(raw / QUESTIONS, [("a", "bridge", "Who?", "Alvediston | Ebble (river)"), row])
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw / QUESTIONS}, line 3: {expected}" in error


def test_repeated_titles_and_wrong_ratios_are_named(raw, tmp_path, capsys):
    options = ["--raw", raw, "--out", tmp_path / "out"]
    write_lines(raw / CORPUS, [RIVER, TOWN, RIVER])
    assert "line 3: the title 'Ebble (river)' is used twice" in fails(prepare, capsys, *options)
    write_lines(raw / CORPUS, [RIVER, TOWN])
    assert "expected three ratios" in fails(prepare, capsys, *options, "--ratios", "[0.5,0.5]")


STREAM = ("Ebble (river)", "A stream that flows past Alvediston.")
VILLAGE = ("Alvediston", "Alvediston has 100 people.")
STONE = ("Stone Mill", "It was built in 1870.")
BOTH = ("Alvediston", "A village by the Ebble.")


def gold(hops, answer=""):
    return [read(title, text, [other for other, _ in hops], answer) for title, text in hops]


@pytest.mark.parametrize(("question", "hops", "answer", "titles", "rule"), [
    ("Who?", (VILLAGE, STREAM), "", ["Ebble (river)", "Alvediston"], "link"),
    ("Who?", (STREAM, VILLAGE), "", ["Ebble (river)", "Alvediston"], "link"),
    ("Who?", (STREAM, VILLAGE), "stream", ["Alvediston", "Ebble (river)"], "answer"),
    ("Who?", (VILLAGE, STREAM), "100", ["Ebble (river)", "Alvediston"], "answer"),
    ("Who?", (VILLAGE, STREAM), "no", ["Ebble (river)", "Alvediston"], "link"),
    ("Where does the Ebble rise?", (BOTH, STREAM), "", ["Ebble (river)", "Alvediston"], "named"),
    ("What is in alvediston's hall?", (STONE, VILLAGE), "", ["Alvediston", "Stone Mill"], "named"),
    ("Which stone was used?", (VILLAGE, STONE), "", ["Stone Mill", "Alvediston"], "words"),
    ("Which?", (VILLAGE, STONE), "", ["Alvediston", "Stone Mill"], "undecided"),
    ("Which?", (STREAM, BOTH), "", ["Ebble (river)", "Alvediston"], "undecided"),
])  # fmt: skip
def test_the_first_rule_that_prefers_one_decides(question, hops, answer, titles, rule):
    found = order(question, gold(hops, answer), "bridge")
    assert ([hop.title for hop in found.hops], found.rule) == (titles, rule)
    assert ("any_order" in found.metadata("bridge")) is (rule == "undecided")


def test_a_comparison_keeps_the_order_of_the_file():
    found = order("Who?", gold((VILLAGE, STREAM), "100"), "comparison")
    assert [hop.title for hop in found.hops] == ["Alvediston", "Ebble (river)"]
    assert found.metadata("comparison") == {"type": "comparison", "any_order": True}


def test_more_hops_than_two_have_no_order():
    assert order("Who?", gold((VILLAGE, STREAM, STONE)), "bridge").rule == "undecided"


@pytest.mark.parametrize(
    ("title", "bare"), [("Ebble (river)", "Ebble"), ("A &amp; B (X) (Y)", "A & B (X)"), ("(x)", "(x)")]
)
def test_a_bare_title(title, bare):
    assert bare_title(title) == bare


def test_rules_are_counted():
    assert describe(Counter(link=1200, answer=3)) == "order of the hops    1,200 link, 3 answer"
