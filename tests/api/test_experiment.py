"""``grls.experiment``: systems beside each other on the same queries."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pytest
from fixture_types import Capsys
from small_data import write_small

import grls
from grls.api.experiment import MEASURES
from grls.cli import main
from grls.data.types import Hit
from grls.errors import DataError
from grls.evaluation.evaluate import evaluate_run, judged_runs
from grls.evaluation.significance import compare, compare_runs, holm
from grls.runs.run import Run

QUERIES = {f"q{n}": f"question {n}" for n in range(4)}
GOLD = {"q0": ["a"], "q1": ["b", "c"], "q2": {"a", "c"}, "q3": {"b": 2, "c": 1, "a": 0}}


class Fixed:
    """A system with fixed hits."""

    def __init__(self, hits: list[list[Any]], pause: float = 0.0):
        self.hits = hits
        self.pause = pause
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: list[str], k: int) -> list[list[Any]]:
        self.asked.append((queries, k))
        time.sleep(self.pause * len(queries))
        return [self.hits[int(query[-1])] for query in queries]


GOOD = [["a", "b"], ["b", "c"], ["c", "a"], ["b", "c"]]
BAD = [["b", "a"], ["a", "b"], ["b"], []]


def test_means_differences_and_p_values_are_those_of_the_library() -> None:
    other = [["a"], ["c"], ["c", "b"], ["a", "b"]]
    table = grls.experiment(
        {"bad": Fixed(BAD), "good": Fixed(GOOD), "other": Fixed(other)}, QUERIES, GOLD, ["R@2", "RR"], "bad"
    )
    assert table["bad"].means == {"R@2": (1 + 0.5 + 0 + 0) / 4, "RR": (0.5 + 0.5 + 0 + 0) / 4}
    assert table["good"].means == {"R@2": 1.0, "RR": 1.0}
    assert table["other"].means == {"R@2": (1 + 0.5 + 0.5 + 0.5) / 4, "RR": (1 + 1 + 1 + 0.5) / 4}
    good, others = compare([1, 1, 1, 1], [1, 0.5, 0, 0]), compare([1, 0.5, 0.5, 0.5], [1, 0.5, 0, 0])
    assert table["good"].differences["R@2"] == good
    assert table["other"].differences["R@2"] == others
    assert [table["good"].p["R@2"], table["other"].p["R@2"]] == holm([good.p, others.p])
    assert table["good"].p["R@2"] > good.p  # corrected
    assert table["bad"].differences == table["bad"].p == {}


def test_graded_gold_counts_in_ndcg() -> None:
    table = grls.experiment({"one": Fixed([[], [], [], ["b", "c"]]), "two": Fixed([[], [], [], ["c", "b"]])},
                            {"q3": "question 3"}, GOLD, ["nDCG@10"])  # fmt: skip
    assert table["one"].means["nDCG@10"] == 1.0
    assert 0.8 < table["two"].means["nDCG@10"] < 1.0
    assert table["two"].differences == {}


@pytest.mark.parametrize("form", [
    lambda name: Hit(name, 1.0),
    lambda name: name,
    lambda name: (name, np.float32(1)),
    lambda name: [name, 1.0],
    lambda name: (name, "a title", 7),
    lambda name: ir_measures.ScoredDoc("q", name, 1.0),
])  # fmt: skip
def test_hits_may_be_ids_or_begin_with_them(form: Any) -> None:
    hits = [[form(name) for name in names] for names in GOOD]
    assert grls.experiment({"one": Fixed(hits)}, QUERIES, GOLD, "R@2")["one"].means == {"R@2": 1.0}


@pytest.mark.parametrize("form", [dict, pd.Series, Counter])
def test_ids_with_scores_are_ranked_by_the_scores(form: Any) -> None:
    hits = [form({"z": 0.1, last: 1, first: 2.5}) for first, last in GOOD]
    assert grls.experiment({"one": Fixed(hits)}, QUERIES, GOLD, "R@2 RR")["one"].means == {"R@2": 1, "RR": 1}
    level = {"a": 1.0, "b": 1.0}  # as trec_eval
    assert grls.experiment({"one": Fixed([level])}, ["question 0"], ["b"], "RR")["one"].means == {"RR": 1.0}


def test_numbers_are_ids_and_done_is_no_passage() -> None:
    system = Fixed([[Hit("DONE", 2.0), 1, 0]])
    table = grls.experiment({"one": system}, ["question 0"], [1], "R@1 RR")
    assert table["one"].means == {"R@1": 1.0, "RR": 1.0}


def test_k_is_what_the_measures_read() -> None:
    for measures, k, asked in (
        (MEASURES, None, 10),
        (["R@50", "P@5"], None, 50),
        (["RR"], 3, 3),
        (["R@3"], 3, 3),
    ):
        system = Fixed(GOOD)
        table = grls.experiment({"one": system}, QUERIES, GOLD, measures, k=k)
        assert {k for _, k in system.asked} == {table.k} == {asked}
        assert system.asked[-1][0] == list(QUERIES.values())


def test_seconds_are_those_of_a_query() -> None:
    table = grls.experiment({"slow": Fixed(GOOD, 0.02), "fast": Fixed(GOOD)}, QUERIES, GOLD)
    assert 0.02 <= table["slow"].seconds < 1
    assert table["fast"].seconds < table["slow"].seconds


def test_what_a_system_does_once_is_not_in_its_seconds() -> None:
    class Slow(Fixed):
        def search(self, queries: list[str], k: int) -> list[list[Any]]:
            time.sleep(0 if self.asked else 0.5)
            return super().search(queries, k)

    system = Slow(GOOD)
    assert grls.experiment({"one": system}, QUERIES, GOLD)["one"].seconds < 0.1
    assert [len(queries) for queries, _ in system.asked] == [1, 4]


def test_figures_are_those_of_retrieve_and_evaluate(tmp_path: Path, capsys: Capsys) -> None:
    data = write_small(tmp_path / "data")
    systems = {"bm25": grls.BM25(data, output=tmp_path / "bm25")}
    systems["flat"] = grls.BM25(data, k1=0.0, b=0.0, output=tmp_path / "flat")
    for name in systems:
        command = ["retrieve", str(tmp_path / name), "--data", str(data), "--split=train", "--k=10"]
        assert main([*command, f"--output={tmp_path / name}-run"]) == 0
    measures = ["nDCG@10", "RR", "AP", "P@5", "Judged@10"]
    table = grls.experiment(systems, data, "train", [*measures, "R@1", "R@5"], "bm25")
    for name in systems:
        run = f"{tmp_path / name}-run.trec"
        report = evaluate_run(run, data, "train", [1, 5], measures)
        recall = {f"R@{k}": report["sequence_recall"][f"recall@{k}"] for k in (1, 5)}
        assert table[name].means == pytest.approx(report["measures"] | recall)
    runs = [Run.load(f"{tmp_path / name}-run.trec") for name in ("flat", "bm25")]
    compared = compare_runs(*judged_runs(runs, data, "train"), [1, 5], measures)
    renamed = {name.replace("recall", "R"): one for name, one in compared.items()}
    assert table["flat"].differences == renamed
    assert table["flat"].p == {name: one.p for name, one in renamed.items()}  # one comparison: not corrected
    assert table.queries == 12


def test_the_table_prints_itself() -> None:
    table = grls.experiment({"bad": Fixed(BAD), "b<i>g": Fixed(GOOD)}, QUERIES, GOLD, ["R@2", "RR"], "bad")
    caption, head, bad, good = repr(table).splitlines()
    assert (
        caption
        == "4 queries, 10 hits each; measures in points; difference to bad, and its p by Holm's correction"
    )
    assert head.split() == ["system", "R@2", "diff.", "p", "RR", "diff.", "p", "seconds", "a", "query"]
    assert bad.split()[:3] == ["bad", "37.5", "25.0"]
    assert good.split()[:-1] == ["b<i>g", "100.0", "+62.5", "0.250", "100.0", "+75.0", "0.125"]
    assert len({len(line) for line in (head, bad, good)}) == 1
    alone = grls.experiment({"bad": Fixed(BAD)}, QUERIES, GOLD, ["R@2", "RR"])
    assert repr(alone).splitlines()[0] == "4 queries, 10 hits each; measures in points"
    assert repr(alone).splitlines()[2].split()[:3] == ["bad", "37.5", "25.0"]
    with pytest.raises(KeyError, match="'good' is none of the systems bad, b<i>g"):
        table["good"]


def test_a_frame_and_a_dict_hold_the_values() -> None:
    table = grls.experiment({"bad": Fixed(BAD), "good": Fixed(GOOD)}, QUERIES, GOLD, ["R@2", "RR"], "bad")
    frame = table.to_frame()
    assert list(frame.columns) == ["R@2", "R@2 difference", "R@2 p", "RR", "RR difference", "RR p", "seconds"]
    assert list(frame.index) == ["bad", "good"]
    assert frame.loc["good", "R@2 difference"] == 0.625
    assert frame.loc["bad"].isna().tolist() == [False, True, True, False, True, True, False]
    alone = grls.experiment({"bad": Fixed(BAD)}, QUERIES, GOLD, ["R@2"]).to_frame()
    assert list(alone.columns) == ["R@2", "seconds"]
    values = json.loads(json.dumps(table.to_dict()))
    assert (values["baseline"], values["k"], values["queries"]) == ("bad", 10, 4)
    assert values["systems"]["good"]["means"] == {"R@2": 1.0, "RR": 1.0}
    assert values["systems"]["good"]["differences"]["R@2"]["p_holm"] == 0.25
    assert values["systems"]["bad"]["differences"] == {}


def test_gold_passages_that_no_system_has_are_told(caplog: pytest.LogCaptureFixture) -> None:
    one, two = grls.BM25({"a": "otters", "x": "question"}), grls.BM25({"b": "herons", "c": "lynxes"})
    grls.experiment({"known": one}, QUERIES, GOLD)
    assert "such as 'b' of the query 'q1': no search finds such a passage" in caplog.text
    assert grls.experiment({"one": one, "two": two}, QUERIES, GOLD)["one"].means["RR"] == 0.0


def test_a_system_answers_every_query() -> None:
    class Short(Fixed):
        def search(self, queries: list[str], k: int) -> list[list[Any]]:
            return super().search(queries, k)[:3]

    with pytest.raises(DataError, match="'one' gave 3 lists of hits for 4 queries"):
        grls.experiment({"one": Short(GOOD)}, QUERIES, GOLD)
