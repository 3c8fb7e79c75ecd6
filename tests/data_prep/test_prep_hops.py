from collections import Counter

import pytest

from data_prep.hops import bare_title, describe, order, read

RIVER = ("Ebble (river)", "A stream that flows past Alvediston.")
TOWN = ("Alvediston", "Alvediston has 100 people.")
MILL = ("Stone Mill", "It was built in 1870.")
BOTH = ("Alvediston", "A village by the Ebble.")


def gold(hops, answer=""):
    return [read(title, text, [other for other, _ in hops], answer) for title, text in hops]


@pytest.mark.parametrize(
    ("question", "hops", "answer", "titles", "rule"),
    [
        ("Who?", (TOWN, RIVER), "", ["Ebble (river)", "Alvediston"], "link"),
        ("Who?", (RIVER, TOWN), "", ["Ebble (river)", "Alvediston"], "link"),
        ("Who?", (RIVER, TOWN), "stream", ["Alvediston", "Ebble (river)"], "answer"),
        ("Who?", (TOWN, RIVER), "100", ["Ebble (river)", "Alvediston"], "answer"),
        ("Who?", (TOWN, RIVER), "no", ["Ebble (river)", "Alvediston"], "link"),
        ("Where does the Ebble rise?", (BOTH, RIVER), "", ["Ebble (river)", "Alvediston"], "named"),
        ("What is in alvediston's hall?", (MILL, TOWN), "", ["Alvediston", "Stone Mill"], "named"),
        ("Which stone was used?", (TOWN, MILL), "", ["Stone Mill", "Alvediston"], "words"),
        ("Which?", (TOWN, MILL), "", ["Alvediston", "Stone Mill"], "undecided"),
        ("Which?", (RIVER, BOTH), "", ["Ebble (river)", "Alvediston"], "undecided"),
    ],
)
def test_the_first_rule_that_prefers_one_decides(question, hops, answer, titles, rule):
    found = order(question, gold(hops, answer), "bridge")
    assert ([hop.title for hop in found.hops], found.rule) == (titles, rule)
    assert ("any_order" in found.metadata("bridge")) is (rule == "undecided")


def test_a_comparison_keeps_the_order_of_the_file():
    found = order("Who?", gold((TOWN, RIVER), "100"), "comparison")
    assert [hop.title for hop in found.hops] == ["Alvediston", "Ebble (river)"]
    assert found.metadata("comparison") == {"type": "comparison", "any_order": True}


def test_more_hops_than_two_have_no_order():
    assert order("Who?", gold((TOWN, RIVER, MILL)), "bridge").rule == "undecided"


@pytest.mark.parametrize(
    ("title", "bare"), [("Ebble (river)", "Ebble"), ("A &amp; B (X) (Y)", "A & B (X)"), ("(x)", "(x)")]
)
def test_a_bare_title(title, bare):
    assert bare_title(title) == bare


def test_rules_are_counted():
    assert describe(Counter(link=1200, answer=3)) == "order of the hops    1,200 link, 3 answer"
