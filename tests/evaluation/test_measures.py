"""Standard measures: by hand, beside trec_eval's conventions, and as the order of a list has it."""

from math import log2

import pytest

from grls.errors import ConfigError
from grls.evaluation.measures import MEASURES, measure, measure_names, ndcg, query_values


def test_grades_count_and_a_query_without_an_answer_scores_nothing():
    qrels = {"a": {"x": 2, "y": 1, "z": 0}, "b": {"x": 1}, "c": {"x": 0}}
    found = query_values(["nDCG@10", "RR", "Judged@2"], {"a": ["z", "x", "w"], "c": ["x"]}, qrels)
    ideal = 2 + 1 / log2(3)
    assert found["nDCG@10"] == pytest.approx([2 / log2(3) / ideal, 0.0, 0.0])
    assert found["RR"] == pytest.approx([0.5, 0.0, 0.0])
    assert found["Judged@2"] == pytest.approx([1.0, 0.0, 1.0])
    assert measure(["RR"], {"a": ["x"]}, qrels) == {"RR": pytest.approx(1 / 3)}


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


def test_ndcg_of_gold_lists():
    assert ndcg([["a", "b"], ["b", "a"], []], [["a"], ["a"], []]) == pytest.approx((1 + 1 / log2(3)) / 3)
    assert ndcg([], []) == 0.0
