"""A measure that the package does not have: its name is known in experiments, evaluations and reports."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from failing import fails
from small_data import write_small

import grls
from grls.cli import main
from grls.errors import ConfigError, DataError
from grls.evaluation import measures
from grls.evaluation.measures import measure_names, query_values, register_measure
from grls.io.recipes import VARIABLE

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


def test_an_experiment_tests_it_against_the_baseline() -> None:
    register_measure("closeness", closeness)
    systems = {"bm25": grls.BM25(CORPUS), "other": grls.BM25(CORPUS, b=0.0)}
    asked = {"q": "what is the otter's den?", "r": "who eats fish?"}
    gold = {"q": ["b"], "r": ["a"]}
    table = grls.experiment(systems, asked, gold, ["closeness", "R@1"], baseline="bm25")
    assert table.measures == ("closeness", "R@1")
    assert "closeness" in str(table)
    assert "100.0" in str(table)


def test_a_command_finds_it_by_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert main(["report", f"{run}", "--measures=first", f"--output={tmp_path / 'page'}"]) == 0
    assert "first" in (tmp_path / "page.html").read_text()


def test_a_function_in_place_of_a_name_is_refused_with_the_remedy() -> None:
    listed: Any = ["RR", closeness]
    with pytest.raises(ConfigError, match=r"got the function 'closeness': add it by .*register_measure"):
        measure_names(listed)


@pytest.mark.parametrize("name", ["RR", "nDCG@10", "two words", ""])
def test_a_name_that_is_taken_or_no_word_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"there already|as one word"):
        register_measure(name, closeness)
    assert not measures.REGISTERED


def test_another_measure_of_the_name_is_refused_and_the_same_one_is_not() -> None:
    register_measure("mine", closeness)
    register_measure("mine", closeness)
    with pytest.raises(ConfigError, match="'mine' is there already"):
        register_measure("mine", lambda ids, grades: 0.0)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), None])
def test_a_value_that_is_no_share_names_the_query(value: Any) -> None:
    register_measure("wrong", lambda ids, grades: value)
    with pytest.raises(DataError, match=f"'wrong' gave {value!r} for query 'q'; expected 0 to 1"):
        query_values(["wrong"], {}, {"q": {"a": 1}})
