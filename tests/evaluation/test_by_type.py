"""Scores of each type of questions."""

import json

import pytest

from grls.data.types import Query
from grls.evaluation.evaluate import format_report, scores_by_type, types_of
from grls.evaluation.hop_scores import FoundByHops
from grls.evaluation.metrics.path_match import Accepted


def query(name: str, kind: object) -> Query:
    return Query(name, name, metadata=json.dumps({"type": kind} if kind is not None else {}))


def test_each_type_has_its_own_means() -> None:
    queries = [query("a", "bridge"), query("b", "comparison"), query("c", "bridge"), query("d", None)]
    ids = [["x"], ["y", "z"], ["w"], ["v"]]
    gold = [["x", "u"], ["y", "z"], ["w"], ["v"]]
    found = scores_by_type(queries, ids, gold, [2], ids)
    assert found == {
        "bridge": pytest.approx(
            {"queries": 2, "recall@2": 0.75, "complete_recall@2": 0.5}
            | {"set_f1": (2 / 3 + 1) / 2, "f1_known_number": (2 / 3 + 1) / 2}
        ),
        "comparison": {"queries": 1, "recall@2": 1.0, "complete_recall@2": 1.0}
        | {"set_f1": 1.0, "f1_known_number": 1.0},
    }


def test_one_type_or_too_many_are_none() -> None:
    assert types_of([query("a", "bridge"), query("b", "bridge")]) == {}
    assert types_of([query(str(n), f"t{n}") for n in range(21)]) == {}
    assert types_of([query("a", 3), query("b", ["x"])]) == {}


def test_each_type_has_its_own_hits_of_hops_exact_sets_and_exact_chains() -> None:
    kinds = ("bridge", "comparison", "bridge", "comparison")
    queries = [query(name, kind) for name, kind in zip("abcd", kinds, strict=True)]
    gold = [["x", "u"], ["y"], ["w", "v"], ["z"]]
    chains = [["x", "u"], ["y", "q"], ["v", "w"], ["z"]]
    paths = [Accepted([gold[0]]), None, Accepted([gold[2]]), None]
    found = scores_by_type(queries, chains, gold, [1], chains, FoundByHops(chains, gold, paths))
    assert found is not None
    bridge, comparison = found["bridge"], found["comparison"]
    assert [bridge[name] for name in ("H1", "H2", "exact_set", "exact_chain")] == [1.0, 1.0, 1.0, 0.5]
    assert [comparison[name] for name in ("H1", "exact_set")] == [1.0, 0.5]
    assert not comparison.keys() & {"H2", "exact_chain"}, "one gold passage, and no known order"
    report = {"queries": {"judged": 4}, "sequence_recall": {"recall@1": 0.75}, "by_type": found}
    lines = format_report(report).splitlines()
    assert lines[lines.index("by type") :] == [
        "by type",
        "bridge                    50.0",
        "  complete                 0.0",
        "comparison               100.0",
        "  complete               100.0",
        "",
        "by type                 set F1  set F1, known number      H1      H2  exact set  exact chain",
        "bridge                   100.0                 100.0   100.0   100.0      100.0         50.0",
        "comparison                83.3                 100.0   100.0       -       50.0            -",
    ]


def test_a_ranking_has_recall_by_type_alone() -> None:
    queries, ids = [query("a", "bridge"), query("b", "comparison")], [["x"], ["y"]]
    scores = scores_by_type(queries, ids, ids, [1])
    report = {"queries": {"judged": 2}, "sequence_recall": {"recall@1": 1.0}, "by_type": scores}
    assert format_report(report).splitlines()[-2:] == [
        "comparison               100.0",
        "  complete               100.0",
    ]
