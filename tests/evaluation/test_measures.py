"""Standard measures: by hand, beside trec_eval's conventions, and as the order of a list has it."""

from math import log2

import ir_measures
import pytest

import grls
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import MEASURES, mean_values, measure_names, ndcg, query_values


def test_grades_count_and_a_query_without_an_answer_scores_nothing():
    qrels = {"a": {"x": 2, "y": 1, "z": 0}, "b": {"x": 1}, "c": {"x": 0}}
    found = query_values(["nDCG@10", "RR", "Judged@2"], {"a": ["z", "x", "w"], "c": ["x"]}, qrels)
    ideal = 2 + 1 / log2(3)
    assert found["nDCG@10"] == pytest.approx([2 / log2(3) / ideal, 0.0, 0.0])
    assert found["RR"] == pytest.approx([0.5, 0.0, 0.0])
    assert found["Judged@2"] == pytest.approx([1.0, 0.0, 1.0])
    assert mean_values(["RR"], {"a": ["x"]}, qrels) == {"RR": pytest.approx(1 / 3)}


def test_the_order_of_the_list_decides_and_not_the_ids():
    qrels = {"q": {"a": 1}}
    assert query_values(["RR"], {"q": ["a", "b"]}, qrels) == {"RR": [1.0]}
    assert query_values(["RR"], {"q": ["b", "a"]}, qrels) == {"RR": [0.5]}


def test_names_are_parsed_once_each_and_need_no_list():
    assert measure_names(" nDCG@10  RR nDCG@10 ") == ["nDCG@10", "RR"]
    assert measure_names(MEASURES) == list(MEASURES)
    assert measure_names("") == []
    assert query_values([], {}, {"q": {"a": 1}}) == {}
    with pytest.raises(ConfigError, match="'Success' is no measure"):
        measure_names(["Success"])


def test_measures_of_ir_measures_count_as_their_names():
    named = ir_measures.nDCG @ 10, ir_measures.RR, ir_measures.R @ 5, ir_measures.AP(rel=2)
    assert measure_names(named) == ["nDCG@10", "RR", "R@5", "AP(rel=2)"]
    assert measure_names(ir_measures.nDCG @ 10) == ["nDCG@10"]
    assert query_values(named[1:2], {"q": ["b", "a"]}, {"q": {"a": 1}}) == {"RR": [0.5]}
    found = grls.experiment(
        {"bm25": grls.BM25(["otters eat fish", "a holt"])}, {"q": "otters"}, {"q": ["0"]}, named[:3]
    )
    assert found.measures == ("nDCG@10", "RR", "R@5")
    with pytest.raises(ConfigError, match="got the function 'ndcg'"):
        measure_names([ndcg])


def test_ndcg_of_gold_lists():
    assert ndcg([["a", "b"], ["b", "a"], []], [["a"], ["a"], []]) == pytest.approx((1 + 1 / log2(3)) / 3)
    assert ndcg([], []) == 0.0


def test_ids_of_any_signs_are_told_apart():
    """trec_eval ends an id at a NUL, and half of a surrogate pair ends the process."""
    qrels = {"q": {"a\0b": 1}, "q\0": {"\ud800": 1}, "1": {"a": 1}}
    rankings = {"q": ["a", "a\0b"], "q\0": ["\ud800"], "1": ["a\0", "1", "a"]}
    assert query_values(["RR"], rankings, qrels) == {"RR": pytest.approx([0.5, 1.0, 1 / 3])}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("NumRet", "is a count"),
        ("NumQ", "is a count"),
        ("ERR@10", "cannot be computed here"),
        ("nDCG(dcg='exp-log2')@10", "cannot be computed here"),
        ("Accuracy", "cannot be computed here"),
        ("RR(rel=0)", "cannot be computed here"),
        ("P@0", "cannot be computed here"),
        ("P@True", "cannot be computed here"),
        (f"P@{2**31}", "cannot be computed here"),
        ("nDCG(gains={1:3000000000})@10", "cannot be computed here"),
    ],
)
def test_what_is_no_share_or_cannot_be_computed_from_any_ids_is_refused(name, problem):
    with pytest.raises(ConfigError, match=problem):
        measure_names(name)


@pytest.mark.parametrize("grade", [3_000_000_000, -3_000_000_000, 2**63])
def test_a_grade_beyond_what_can_be_counted_is_refused(grade):
    with pytest.raises(DataError, match=f"query 'q' and passage 'a' have the grade {grade}"):
        query_values(["nDCG"], {"q": ["a"]}, {"q": {"b": 1, "a": grade}})


def test_measures_are_those_of_ir_measures():
    names = [
        "nDCG@2",
        "nDCG(gains={0:0,1:1,2:3})@3",
        "AP(rel=2)",
        "RR@2",
        "Bpref",
        "Judged@2",
        "SetF",
        "IPrec@0.1",
    ]
    qrels = {"a": {"x": 2, "y": 1, "z": 0}, "b": {"x": 1, "v": -1}, "c": {"x": 0}, "d": {"y": 2}}
    rankings = {"a": ["z", "y", "w", "x"], "b": ["v", "x"], "c": ["x"], "e": ["x"]}
    judged = [ir_measures.Qrel(q, p, g) for q, grades in qrels.items() for p, g in grades.items()]
    hits = [ir_measures.ScoredDoc(q, p, -n) for q, ids in rankings.items() for n, p in enumerate(ids)]
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names], judged, hits)
    ours = mean_values(measure_names(names), rankings, qrels)
    assert ours == pytest.approx({str(name): value for name, value in theirs.items()})
