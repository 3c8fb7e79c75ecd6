"""Scores of each type of questions."""

import json

import pytest

from grls.data.types import Query
from grls.evaluation.by_type import scores_by_type, types_of


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
