"""Standard measures beside trec_eval's conventions, a user's own, and paired tests of them."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any

import ir_measures
import pytest
from failing import fails, raises
from fixture_types import Capsys, Patch
from small_data import write_small

import grls
from grls.cli import main
from grls.errors import ConfigError, DataError
from grls.evaluation import measures
from grls.evaluation.measures import (
    MEASURES,
    measure_names,
    ndcg,
    query_values,
    register_measure,
)
from grls.evaluation.significance import compare, format_comparison, holm, shown_p
from grls.io.recipes import VARIABLE


def test_grades_count_and_a_query_without_an_answer_scores_nothing():
    qrels = {"a": {"x": 2, "y": 1, "z": 0}, "b": {"x": 1}, "c": {"x": 0}}
    found = query_values(["nDCG@10", "RR", "Judged@2"], {"a": ["z", "x", "w"], "c": ["x"]}, qrels)
    ideal = 2 + 1 / log2(3)
    assert found["nDCG@10"] == pytest.approx([2 / log2(3) / ideal, 0.0, 0.0])
    assert found["RR"] == pytest.approx([0.5, 0.0, 0.0])
    assert found["Judged@2"] == pytest.approx([1.0, 0.0, 1.0])
    assert query_values(["RR"], {"a": ["x"]}, qrels) == {"RR": pytest.approx([1.0, 0.0, 0.0])}


def test_names_of_measures_are_texts_or_of_ir_measures_once_each():
    assert measure_names(" nDCG@10  RR nDCG@10 ") == ["nDCG@10", "RR"]
    assert measure_names(MEASURES) == list(MEASURES)
    assert measure_names("") == []
    assert query_values([], {}, {"q": {"a": 1}}) == {}
    raises(ConfigError, "'Success' is no measure", measure_names, ["Success"])
    named = ir_measures.nDCG @ 10, ir_measures.RR, ir_measures.R @ 5, ir_measures.AP(rel=2)
    assert measure_names(named) == ["nDCG@10", "RR", "R@5", "AP(rel=2)"]
    assert measure_names(ir_measures.nDCG @ 10) == ["nDCG@10"]
    assert query_values(["RR"], {"q": ["b", "a"]}, {"q": {"a": 1}}) == {"RR": [0.5]}
    found = grls.experiment(
        {"bm25": grls.BM25(["otters eat fish", "a holt"])}, {"q": "otters"}, {"q": ["0"]}, named[:3]
    )
    assert found.measures == ("nDCG@10", "RR", "R@5")
    raises(ConfigError, "got the function 'ndcg'", measure_names, [ndcg])


def test_ndcg_of_gold_lists():
    assert ndcg([["a", "b"], ["b", "a"], []], [["a"], ["a"], []]) == pytest.approx((1 + 1 / log2(3)) / 3)
    assert ndcg([], []) == 0.0


def test_ids_of_any_signs_are_told_apart():
    """trec_eval ends an id at a NUL, and half of a surrogate pair ends the process."""
    qrels = {"q": {"a\0b": 1}, "q\0": {"\ud800": 1}, "1": {"a": 1}}
    rankings = {"q": ["a", "a\0b"], "q\0": ["\ud800"], "1": ["a\0", "1", "a"]}
    assert query_values(["RR"], rankings, qrels) == {"RR": pytest.approx([0.5, 1.0, 1 / 3])}


@pytest.mark.parametrize(("name", "problem"), [
    ("NumRet", "is a count"),
    ("ERR@10", "cannot be computed here"),
    ("nDCG(dcg='exp-log2')@10", "cannot be computed here"),
    ("Accuracy", "cannot be computed here"),
    ("RR(rel=0)", "cannot be computed here"),
    ("P@0", "behind @ stands a rank from 1 on, as in 'P@10'"),
    ("complete@05", "behind @ stands a rank from 1 on, as in 'complete@10'"),
    ("IPrec@0", "invalid param recall=0"),
    ("nDCG@ten", "behind @ stands a rank from 1 on, as in 'nDCG@10'"),
    ("nDCG(gains={1:3000000000})@10", "cannot be computed here"),
])  # fmt: skip
def test_what_is_no_share_or_cannot_be_computed_from_any_ids_is_refused(name, problem):
    raises(ConfigError, problem, measure_names, name)


@pytest.mark.parametrize("grade", [3_000_000_000, -3_000_000_000, 2**63])
def test_a_grade_beyond_what_can_be_counted_is_refused(grade):
    with pytest.raises(DataError, match=f"query 'q' and passage 'a' have the grade {grade}"):
        query_values(["nDCG"], {"q": ["a"]}, {"q": {"b": 1, "a": grade}})


def test_measures_are_those_of_ir_measures():
    names = [
        "nDCG@2", "nDCG(gains={0:0,1:1,2:3})@3", "AP(rel=2)", "RR@2", "Bpref", "Judged@2", "SetF",
        "IPrec@0.1", "Compat(p=0.8)", "Compat(p=0.9,normalize=False)",
    ]  # fmt: skip
    qrels = {
        "a": {"u": 2, "x": 2, "y": 1, "z": 0, "t": 1},
        "b": {"x": 1, "v": -1},
        "c": {"x": 0},
        "d": {"y": 2},
    }
    rankings = {"a": ["z", "y", "w", "x"], "b": ["v", "x"], "c": ["x"], "e": ["x"]}
    judged = [ir_measures.Qrel(q, p, g) for q, grades in qrels.items() for p, g in grades.items()]
    hits = [ir_measures.ScoredDoc(q, p, 9 - n) for q, ids in rankings.items() for n, p in enumerate(ids)]
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names], judged, hits)
    values = query_values(measure_names(names), rankings, qrels)
    ours = {name: fmean(rows) for name, rows in values.items()}
    assert ours == pytest.approx({str(name): value for name, value in theirs.items()})


CORPUS = {"a": "Otters eat fish.", "b": "A holt is an otter's den.", "c": "Lynxes hunt hares."}
MODULE = """
from grls.evaluation.measures import register_measure

def first(ids, grades):
    return float(grades.get(ids[0], 0) > 0) if ids else 0.0

register_measure("first", first)
"""


def closeness(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    """The gold passages, divided by the stretch of the ranking that holds them all."""
    gold = {name for name, grade in grades.items() if grade > 0}
    ranks = [rank for rank, name in enumerate(ids) if name in gold]
    return len(gold) / (ranks[-1] - ranks[0] + 1) if gold and len(ranks) == len(gold) else 0.0


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(measures.REGISTERED)
    yield
    measures.REGISTERED.clear()
    measures.REGISTERED.update(before)
    sys.modules.pop("my_measures", None)


def test_it_is_computed_beside_the_standard_ones_in_their_order() -> None:
    register_measure("closeness", closeness)
    rankings = {"q": ["a", "x", "b"], "r": ["a", "b"], "s": ["a"]}
    qrels = {name: {"a": 1, "b": 1, "c": 0} for name in ("q", "r", "s", "unanswered")}
    values = query_values(["RR", "closeness", "P@5"], rankings, qrels)
    assert list(values) == ["RR", "closeness", "P@5"]
    assert values["closeness"] == [pytest.approx(2 / 3), 1.0, 0.0, 0.0]
    assert values["RR"] == [1.0, 1.0, 1.0, 0.0]
    assert query_values(["closeness"], rankings, qrels)["closeness"] == values["closeness"]
    assert query_values(["closeness@2"], rankings, qrels)["closeness@2"] == [0.0, 1.0, 0.0, 0.0]


def test_recall_is_a_registered_measure_that_counts_a_repeated_passage_once() -> None:
    rankings = {"q": ["a", "a", "b"], "r": ["c"]}
    qrels = {"q": {"a": 1, "b": 2, "c": 0}, "r": {"c": 0}}
    assert query_values(["R@2", "R@3", "R"], rankings, qrels) == {
        "R@2": [0.5, 0.0], "R@3": [1.0, 0.0], "R": [1.0, 0.0],
    }  # fmt: skip
    raises(ConfigError, "behind @ stands a rank from 1 on", measure_names, "R@0")


def test_a_command_finds_it_by_a_plugin(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    write_small(tmp_path / "data")
    (tmp_path / "my_measures.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    run, data = tmp_path / "run.jsonl", f"--data={tmp_path / 'data'}"
    assert main(["index", "bm25", f"--corpus={tmp_path / 'data'}", f"--output={tmp_path / 'r'}"]) == 0
    assert main(["retrieve", f"{tmp_path / 'r'}", data, f"--output={run.with_suffix('')}"]) == 0
    asked = ["evaluate", f"{run}", data, "--measures=RR first", f"--output={tmp_path / 'report.json'}"]
    assert "'first' is no measure" in fails(capsys, *asked)
    monkeypatch.setenv(VARIABLE, "my_measures")
    assert main(asked) == 0
    assert "\nfirst  " in capsys.readouterr().out
    assert set(json.loads((tmp_path / "report.json").read_text())["measures"]) == {"RR", "first"}
    assert main(["experiment", f"{run}", "--measures=first", f"--output={tmp_path / 'page'}"]) == 0
    assert "first" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("name", ["RR", "nDCG@10", "two words", ""])
def test_a_name_that_is_taken_or_no_word_is_refused(name: str) -> None:
    raises(
        ConfigError,
        r"there already|name must be one word",
        register_measure,
        name,
        closeness,
    )
    assert list(measures.REGISTERED) == ["R", "complete"]


def test_another_measure_of_the_name_is_refused_and_the_same_one_is_not() -> None:
    register_measure("mine", closeness)
    register_measure("mine", closeness)
    raises(ConfigError, "'mine' is there already", register_measure, "mine", lambda ids, grades: 0.0)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), None])
def test_a_value_that_is_no_share_names_the_query(value: Any) -> None:
    register_measure("wrong", lambda ids, grades: value)
    with pytest.raises(DataError, match=f"'wrong' gave {value!r} for query 'q'; expected 0 to 1"):
        query_values(["wrong"], {}, {"q": {"a": 1}})


def enumerated(differences):
    """The exact two-sided p by every swap, written down naively: twice the smaller tail."""
    seen = sum(differences)
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    above = sum(s >= seen - 1e-12 for s in sums) / len(sums)
    below = sum(s <= seen + 1e-12 for s in sums) / len(sums)
    return min(1.0, 2 * min(above, below))


@pytest.mark.parametrize(("first", "second"), [
    ([1, 1, 1, 1, 1], [0, 0, 0, 0, 0]),
    ([1, 0.5, 0.2, 1, 0, 1], [0, 1, 0.1, 0.5, 0.3, 0.25]),
    ([0.25, 0.5, 1], [0.5, 0.25, 0]),
])  # fmt: skip
def test_few_queries_are_tested_exactly(first, second):
    result = compare(first, second)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    assert result.p == pytest.approx(enumerated(differences))
    assert result.difference == pytest.approx(sum(differences) / len(differences))
    assert result.queries == len(first)


def test_queries_on_which_both_are_equal_change_the_difference_but_not_p():
    alone = compare([1, 1, 1, 0.5], [0, 0, 0, 1])
    among = compare([1, 1, 1, 0.5] + [0.3] * 36, [0, 0, 0, 1] + [0.3] * 36)
    assert among.p == alone.p
    assert among.difference == pytest.approx(alone.difference / 10)


def test_many_queries_are_resampled_with_a_fixed_seed():
    first = [(7 * n % 10) / 10 for n in range(60)]
    second = [(3 * n % 10) / 10 for n in range(60)]
    shifted = [value + 0.3 for value in second]
    assert compare(first, second, 999) == compare(first, second, 999)
    assert compare(first, second, 999, seed=1) != compare(first, second, 999)
    assert compare(first, second, 999).p > 0.2
    assert compare(first, shifted, 999).p < 0.05
    assert compare(shifted, second, 999)[:4] == pytest.approx((0.3, 0.3, 0.3, 2 / 1000))


def test_the_interval_holds_the_difference_and_turns_with_the_sign():
    first, second = [0.9, 0.1, 0.8, 0.7, 0.4, 1.0], [0.5, 0.2, 0.1, 0.6, 0.4, 0.3]
    one, other = compare(first, second), compare(second, first)
    assert one.low < one.difference < one.high
    assert other.difference == -one.difference
    assert other.p == pytest.approx(one.p)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=0.05)


def test_one_query_and_equal_runs_prove_nothing():
    assert compare([0.5, 1, 0], [0.5, 1, 0]) == (0.0, 0.0, 0.0, 1.0, 3)
    assert compare([1], [0]) == (1.0, None, None, 1.0, 1)
    assert compare([1, 0.5, 0.5], [0, 0.5, 0.5]).p == 1.0


def test_what_cannot_be_compared_is_refused():
    raises(DataError, "got 2 and 1", compare, [1, 0], [1])
    raises(DataError, "at least one", compare, [], [])


def test_holm():
    # Holm (1979) by hand: 0.005*4, 0.01*3, 0.03*2, then 0.04 may not fall below 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_small_p_is_shown_as_small_and_never_as_0() -> None:
    assert [shown_p(p) for p in (1.0, 0.0514, 0.001, 0.00099, 0.0001)] == [
        "1.000", "0.051", "0.001", "< 0.001", "< 0.001"
    ]  # fmt: skip
    compared = format_comparison({"RR": compare([1.0] * 40, [0.0] * 40)}, "base")
    assert compared.splitlines()[-1].split()[-2:] == ["<", "0.001"]
