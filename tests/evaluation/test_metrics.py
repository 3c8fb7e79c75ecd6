"""Hand-known values of every metric, and the same through ``evaluate``, without a network."""

import socket
import sys
from pathlib import Path
from typing import Any

import evaluate
import nli_models
import pytest
from failing import raises
from fixture_types import Patch
from hypothesis import given
from hypothesis import strategies as st

from grls.errors import ConfigError, DataError
from grls.evaluation import hugging_face
from grls.evaluation.answers import attributed, hypothesis, joined
from grls.evaluation.graph import problem_from_texts
from grls.evaluation.measures import query_values
from grls.evaluation.metrics import (
    Accepted,
    complete_recall,
    contains_answer,
    exact_chain,
    hop_hits,
    known_number,
    means,
    padded_tokens,
    path_match,
    seen_unseen,
    sequence_recall,
)


def test_sequence_recall_is_averaged_over_queries():
    retrieved = [["a", "x", "b", "c"], ["x", "y"], []]
    gold = [["a", "b", "c"], ["y"], ["z"]]
    assert means(sequence_recall, retrieved, gold, ks=[1, 2, 10]) == pytest.approx(
        {"recall@1": (1 / 3 + 0 + 0) / 3, "recall@2": (1 / 3 + 1 + 0) / 3, "recall@10": (1 + 1 + 0) / 3}
    )
    assert means(sequence_recall, [["a", "a", "b"]], [["a", "b"]], ks=[2, 3]) == {
        "recall@2": 0.5,
        "recall@3": 1.0,
    }
    assert means(sequence_recall, [["a"], ["b"]], [["a"], []], ks=[1]) == {"recall@1": 0.5}


def test_hits_of_each_hop_count_the_queries_that_have_so_many_gold_passages():
    retrieved = [["a", "x"], ["b", "b", "c"], ["x"]]
    gold = [["a", "b"], ["c", "b", "d"], ["y"]]
    assert means(hop_hits, retrieved, gold) == pytest.approx({"H1": 2 / 3, "H2": 0.0, "H3": 1.0})
    assert means(hop_hits, retrieved, gold, limit=1) == pytest.approx({"H1": 2 / 3})
    assert means(hop_hits, [["a"]], [["a", "b", "c"]], limit=1) == {"H1": 1.0}
    assert means(hop_hits, [["a"]], [[]]) == {}


def test_exact_chains_have_the_right_passages_and_the_right_end():
    retrieved = [["a", "b"], ["b", "a"], ["a", "b", "c"], []]
    gold = [["a", "b"], ["a", "b"], ["a", "b"], ["a"]]
    order = [Accepted([["a", "b"]]), Accepted([["a", "b"]]), Accepted([["a", "b"]]), None]
    assert means(exact_chain, retrieved, gold, order) == pytest.approx(
        {"exact_set": 0.5, "exact_chain": 1 / 3}
    )
    free = [some and some._replace(any_order=True) for some in order]
    assert means(exact_chain, retrieved, gold, free)["exact_chain"] == pytest.approx(2 / 3)
    assert "exact_chain" not in means(exact_chain, retrieved, gold)


def test_the_known_number_ends_a_list_after_as_many_passages_as_are_gold():
    retrieved = [["a", "x", "b"], ["b", "b", "a"], ["a"], ["x", "c"], []]
    gold = [["a", "b"], ["a", "b", "b"], ["a", "b"], ["c"], ["c"]]
    scores = [1 / 2, 1.0, 2 / 3, 0.0, 0.0]  # the second counts distinct passages, the third is too short
    assert [
        known_number(*pair)["f1_known_number"] for pair in zip(retrieved, gold, strict=True)
    ] == pytest.approx(scores)
    assert means(known_number, retrieved, gold) == {"f1_known_number": pytest.approx(sum(scores) / 5)}
    assert known_number(["a"], []) == {"f1_known_number": 0.0}


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=8, unique=True),
    st.sets(st.sampled_from("abcdefgh"), min_size=1),
)
def test_the_known_number_is_r_precision_where_the_list_is_long_enough(ids, gold):
    qrels = {"q": dict.fromkeys(gold, 1)}
    (expected,) = query_values(["Rprec"], {"q": ids}, qrels)["Rprec"]
    assert known_number(ids, gold) == {"f1_known_number": pytest.approx(expected)}


def test_complete_recall_wants_every_gold_passage():
    retrieved = [["a", "x", "b"], ["b", "a"], ["a"], []]
    gold = [["a", "b"], ["a", "b", "b"], ["a", "b"], ["a"]]
    assert means(complete_recall, retrieved, gold, ks=[3, 1, 2]) == {
        "complete_recall@1": 0.0, "complete_recall@2": 0.25, "complete_recall@3": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(("retrieved", "paths", "any_order", "matched"), [
    (["a", "b"], [["a", "b"]], False, True),
    (["a", "b", "c"], [["a", "b"]], False, True),
    (["b", "a"], [["a", "b"]], False, False),
    (["b", "a", "c"], [["a", "b"]], True, True),
    (["a", "c", "b"], [["a", "b"]], True, False),
    (["a", "a", "b"], [["a", "b"]], False, False),
    (["a"], [["a", "b"]], True, False),
    (["c", "d"], [["a", "b"], ["c", "d"]], False, True),
    (["c"], [["a", "b"], ["c"]], False, True),
    ([], [[]], True, False),
    (["a"], [], False, False),
])  # fmt: skip
def test_path_match_is_the_path_first_in_an_accepted_order(retrieved, paths, any_order, matched):
    assert path_match(retrieved, Accepted(paths, any_order)) == {"path_match": float(matched)}
    halved = means(path_match, [retrieved, ["z"]], [Accepted(paths, any_order), Accepted([["y"]])])
    assert halved == {"path_match": matched / 2}


def test_cutoffs_below_one_and_no_query_are_refused():
    raises(ConfigError, r"at least 1, got \[0, 5\]", sequence_recall, ["a"], ["a"], [0, 5])
    raises(DataError, "no query", means, sequence_recall, [], [])


def test_seen_unseen_averages_each_kind_over_the_queries_that_have_it():
    retrieved = [["s1", "u1"], ["u2", "s1"], ["x"]]
    gold = [["s1", "s2", "u1"], ["u2"], ["u3"]]
    assert means(seen_unseen, retrieved, gold, seen={"s1", "s2"}, ks=[1, 2]) == pytest.approx(
        {
            "seen_recall@1": 1 / 2,
            "seen_recall@2": 1 / 2,
            "seen_queries": 1,
            "unseen_recall@1": (0 + 1 + 0) / 3,
            "unseen_recall@2": (1 + 1 + 0) / 3,
            "unseen_queries": 3,
            "all_unseen_queries": 2,
        }
    )
    assert means(seen_unseen, [["a"]], [["a"]], seen=[], ks=[1]) == {
        "seen_recall@1": None, "seen_queries": 0, "unseen_recall@1": 1.0, "unseen_queries": 1,
        "all_unseen_queries": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("text", "answer", "contained"), [
    ("The Cat sat.", "cat", True),
    ("A catalogue of birds", "cat", False),
    ("born in 1969-70", "1969", True),
    ("He said: yes,no", "yes, no", True),
    ("The U.S. won", "us", False),
    ("Beyoncé sang", "beyoncé", True),
    ("Beyoncé sang", "beyonce", False),
    ("the New\nYork Times", "new york", True),
    ("the beatles", "The Beatles", True),
    ("anything", "", False),
])  # fmt: skip
def test_an_answer_is_contained_as_a_run_of_tokens(text, answer, contained):
    assert contains_answer(text, ["never this", answer]) is contained


def test_normalise_splits_symbols_and_drops_control_characters():
    assert padded_tokens("É\u200b-2_x") == " e\u0301 - 2 _ x "
    assert padded_tokens(" \n") == " "


def test_a_problem_needs_facts():
    raises(DataError, "expected a fact", problem_from_texts, ["anna runs"], "anna is big .")
    raises(DataError, "no start fact", problem_from_texts, [], "anna is big .")


class Contains:
    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def entails(self, premises, hypotheses):
        self.pairs += zip(premises, hypotheses, strict=True)
        return [h.split("'")[-2] in p for p, h in zip(premises, hypotheses, strict=True)]


def test_autoais_asks_what_follows_from_the_evidence_joined():
    judge = Contains()
    questions, answers = ["who ", "what", "why", "when", "how"], [" Ann", "red", "", "then", "so"]
    evidence = [["It was Ann.", "It was.", "It was Ann."], ["blue"], ["because"], [], [" "]]
    assert attributed(questions, answers, evidence, judge) == [True, False, False, False, False]
    assert judge.pairs == [
        ("It was Ann.\nIt was.", "The answer to the question 'who' is 'Ann'"),
        ("blue", "The answer to the question 'what' is 'red'"),
    ]
    assert joined([]) == ""
    assert hypothesis("q?", "a") == "The answer to the question 'q?' is 'a'"


NLI = "NLI"
"""Stands for the folder of a model of entailment in the calls below."""

CALLS = {
    "hits": ({"predictions": [["x", "a"], []], "references": [["a", "b"], ["c"]], "k": [1, 2]},
        {"hits@1": 0.0, "hits@2": 0.5}),
    "autoais": (
        {
            "predictions": ["the barn", "", "the barn", "so"],
            "references": [
                {"question": "what", "evidence": evidence}
                for evidence in (["it is", "red"], ["red"], ["it is blue"], [])
            ],
            "nli": NLI,
            "device": "cpu",
        },
        {"autoais": 0.25},
    ),
    "sequence_recall": ({"predictions": [["a", "x"], []], "references": [["a", "b"], ["c"]], "k": [1, 2]},
        {"recall@1": 0.25, "recall@2": 0.25}),
    "seen_unseen": (
        {"predictions": [["a", "x"]], "references": [["a", "b"]], "k": [1], "seen": ["a"]},
        {"seen_recall@1": 1.0, "seen_queries": 1, "unseen_recall@1": 0.0, "unseen_queries": 1}
        | {"all_unseen_queries": 0},
    ),
    "set_f1": ({"predictions": [["a", "x"]], "references": [["a", "b"]]},
        {"precision": 0.5, "recall": 0.5, "f1": 0.5}),
    "answer_f1": ({"predictions": ["the barn", "cow"], "references": [["Barn", "mill"], ["a sheep"]]},
        {"exact_match": 0.5, "f1": 0.5}),
    "novel_f1": (
        {
            "predictions": ["Ada swam in the sea", "the barn"],
            "references": [["she swam at sea"], ["barn"]],
            "questions": [["who is Ada", "did she swim"], ["what barn"]],
        },
        {"novel_f1": 1.0},
    ),
    "complete_recall": ({"predictions": [["a", "b"], []], "references": [["b", "a"], ["c"]], "k": [1, 2]},
        {"complete_recall@1": 0.0, "complete_recall@2": 0.5}),
    "path_match": (
        {
            "predictions": [["a", "b"], ["a", "b"]],
            "references": [{"paths": [["b", "a"]], "any_order": known} for known in (True, False)],
        },
        {"path_match": 0.5},
    ),
    "hop_hits": ({"predictions": [["a", "x"]], "references": [["a", "b"]]}, {"H1": 1.0, "H2": 0.0}),
    "exact_chain": ({"predictions": [["b", "a"]], "references": [["a", "b"]]}, {"exact_set": 1.0}),
    "known_number": ({"predictions": [["a", "x", "b"]], "references": [["a", "b"]]},
        {"f1_known_number": 0.5}),
    "done_missing": ({"predictions": [True, False]}, {"done_missing": 0.5}),
    "answer_recall": ({"predictions": [["a fox", "red"]], "references": [["red", "blue"]], "k": [1, 2]},
        {"answer_recall@1": 0.0, "answer_recall@2": 1.0}),
    "graph_success": (
        {
            "predictions": [["anna is kind .", "if someone is kind then they are big ."]],
            "references": [{"start": ["anna is kind ."], "goal": "anna is big ."}],
        },
        {"success": 1.0, "node_number": 0.0, "start_node": 0.0, "end_node": 0.0, "missing_edge": 0.0},
    ),
}  # fmt: skip


def test_every_metric_loads_by_its_name_without_a_network(tmp_path: Path, monkeypatch: Patch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a metric reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert hugging_face.METRICS.keys() == CALLS.keys()
    nli = str(nli_models.classifier(tmp_path / "nli"))
    for name, (arguments, expected) in CALLS.items():
        metric = evaluate.load(hugging_face.__file__, name, cache_dir=str(tmp_path / "cache"))
        assert metric.compute(**{k: nli if v == NLI else v for k, v in arguments.items()}) == expected, name
    raises(ConfigError, "one of sequence_recall, ", evaluate.load, hugging_face.__file__)
