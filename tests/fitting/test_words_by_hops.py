"""BM25 ranked by hops in a fit: planned where it is cheap, tuned, compared, and kept where it wins."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fit_helpers import WORDS_ALONE, fit_options
from test_planner import SPEEDS, facts, keys, planned, skipped

import grls
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.fitting.planner import revised_plan
from grls.fitting.run import fit_dataset, plan_dataset
from grls.retrieve.hops.ranked import RankedHops
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec

FILMS = 30
SPLITS = {"train": range(10), "dev": range(10, 20), "test": range(20, FILMS)}


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Films name directors, directors towns; a question names the film alone."""
    passages, queries = [], []
    for n in range(FILMS):
        name = f"Person{n}"
        passages.append(Passage(f"f{n}", f"Film{n} is a film. {name} was its maker.", f"Film{n}"))
        passages.append(Passage(f"p{n}", f"{name} came from Town{n}. {name} was a painter.", name))
        passages.append(Passage(f"d{n}", f"Where a director was born, part {n} of many.", "Directors"))
        queries.append(Query(f"q{n}", f"Where was the director of Film{n} born?", (f"f{n}", f"p{n}")))
    qrels = {split: {f"q{n}": {f"f{n}": 1, f"p{n}": 1} for n in part} for split, part in SPLITS.items()}
    write_dataset(tmp_path / "data", passages, queries, qrels)
    return tmp_path / "data"


def test_bm25_by_hops_is_kept_where_only_a_passage_names_the_next(films: Path, tmp_path: Path) -> None:
    options = fit_options(**WORDS_ALONE)
    plan = plan_dataset(str(films), tmp_path / "plan", options)
    assert keys(plan) == ["tune bm25-hops", "compare", "fusion fusion", "report"]
    assert "hops of BM25, on 10 dev queries" in plan.text()
    fitted = fit_dataset(str(films), tmp_path / "out", options, shown=False)
    assert fitted.kept == "bm25-hops"
    assert fitted.metrics["bm25"]["test R@2"] < fitted.metrics["bm25-hops"]["test R@2"] == 1.0
    opened = load_retriever(tmp_path / "out", Opening("cpu"))
    assert isinstance(opened, RankedHops)
    assert read_spec(tmp_path / "out" / "members" / "bm25-hops")["retriever"] == "../bm25"
    hits = grls.load(tmp_path / "out", device="cpu").search("Where was the director of Film7 born?", 2)
    assert [hit.id for hit in hits] == ["f7", "p7"]
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["base_models"] == []


def test_it_is_left_out_where_it_would_take_long_or_no_query_has_several_passages() -> None:
    assert "bm25-hops" not in planned(None, facts(gold=1.0)).systems
    assert "hops of BM25" not in skipped(planned(None, facts(gold=1.0)))
    assert "bm25-hops" in planned("60m").systems
    slow = replace(SPEEDS, bm25_query=1.0)
    assert skipped(planned("60m", speeds=slow))["hops of BM25"] == "for want of time"
    assert "bm25-hops" in planned(None, speeds=slow).systems


def test_a_revised_plan_compares_it_still() -> None:
    plan = planned("60m")
    took = {stage.key: 1.8 * stage.seconds for stage in plan.stages[:6]}
    revised = revised_plan(plan, took)
    assert keys(revised)[0] == "tune bm25-hops"
    assert "bm25-hops" in revised.systems
    early = revised_plan(plan, {"tune bm25-hops": plan.stages[0].seconds})
    assert early.effort.dev > plan.effort.dev or early.effort.writer_steps >= plan.effort.writer_steps
