"""The onward model, learned from development queries: what it tells, how it is judged, the step."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.retrieve.base import Description, HopHits
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.options import FEATURES, HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.hops.stop import Onward, SeenHop, onward_probability
from grls.retrieve.registry import Opening, create, load_retriever
from grls.tune.dev import DevQueries
from grls.tune.hops import cross_validated, learn_onward
from grls.tune.options import TuneOptions
from grls.tune.run import tune_folder

PAIRS = 12
"""Questions of each kind."""


def seen_hops(queries: int) -> tuple[list[SeenHop], list[set[str]]]:
    """Queries of even number have a gold second passage, and hops of low entropy."""
    seen = []
    for n in range(queries):
        entropy = 0.5 + 0.01 * n if n % 2 == 0 else 2.0 + 0.01 * n
        features = (0.0, 0.0, entropy, 0.0, -1.0, -1.0)
        seen.append(SeenHop(n, features, {"second": 0.9, "other": 0.1}))
    return seen, [{"first", "second"} if n % 2 == 0 else {"first"} for n in range(queries)]


def test_the_model_tells_hops_that_find_something_from_others() -> None:
    seen, gold = seen_hops(20)
    model = learn_onward(seen, gold)
    assert model is not None
    assert len(model) == len(FEATURES) + 1
    for one in seen:
        likely = onward_probability(model, one.features)
        assert likely > 0.6 if one.query % 2 == 0 else likely < 0.3


def test_there_is_no_model_where_nothing_can_be_learned() -> None:
    seen, gold = seen_hops(20)
    assert learn_onward(seen, [{"first"}] * 20) is None
    assert learn_onward([], gold) is None
    sure = [one._replace(shares={"second": 1.0}) for one in seen]
    assert learn_onward(sure, [{"second"}] * 20) is None
    few, own = seen_hops(9)
    assert cross_validated(few, own, lambda model, numbers: [None for _ in numbers]) is None


def test_no_query_is_judged_by_a_model_that_has_seen_it() -> None:
    seen, gold = seen_hops(20)
    results = cross_validated(seen, gold, lambda model, numbers: [(n, model) for n in numbers])
    assert results is not None
    assert [number for number, _ in results] == list(range(20))
    for number, model in results:
        changed = [one if one.query != number else one._replace(shares={"other": 1.0}) for one in seen]
        again = cross_validated(changed, gold, lambda model, numbers: [(n, model) for n in numbers])
        assert again is not None
        assert again[number][1] == model
        if number % 2 == 0:
            assert learn_onward(changed, gold) != learn_onward(seen, gold)


class Mixed:
    """Questions of two kinds, in turn; two gold passages each.

    Of the first kind one hop finds gold ``a`` and the next, sharp, gold ``b``. Of the second kind one hop
    finds both, ``c`` and ``d``, and the next two wrong passages that would stand above ``d``.
    """

    kind, learned_done, done = "mixed", False, None
    corpus = Corpus.from_passages(
        [Passage(f"{letter}{n}", f"text {letter} {n}") for n in range(2 * PAIRS) for letter in "abcdxyz"]
    )

    def describe(self) -> Description:
        return Description("mixed", "log-probability")

    def fingerprint(self) -> str:
        return "mixed"

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int, allow: object = None
    ) -> list[HopHits]:
        steps = []
        for query, passages in zip(queries, evidence, strict=True):
            n, after = int(query.id), bool(passages)
            if n % 2 == 0:
                row = {f"b{n}": 0.97, f"y{n}": 0.03} if after else {f"a{n}": 0.6, f"x{n}": 0.4}
            else:
                row = {f"y{n}": 0.5, f"z{n}": 0.5} if after else {f"c{n}": 0.55, f"d{n}": 0.45}
            steps.append(HopHits([Hit(name, math.log(p)) for name, p in row.items()], None))
        return steps


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ranked hops whose retriever is :class:`Mixed`."""
    BM25Retriever(Mixed.corpus).save_pretrained(tmp_path / "bm25")
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": {"steps": "ranked", "max": 2}})
    monkeypatch.setattr("grls.tune.hops.inner", lambda tuning: Mixed())
    return tmp_path / "hops"


QUERIES = [Query(str(n), "?") for n in range(2 * PAIRS)]
GOLD = [[f"a{n}", f"b{n}"] if n % 2 == 0 else [f"c{n}", f"d{n}"] for n in range(2 * PAIRS)]
DEV = DevQueries("data", "dev", QUERIES, GOLD, Mixed.corpus)
GRID = TuneOptions(k=2, hops=(1, 2), hop_temperatures=(1.0,))


def test_a_folder_learns_which_questions_take_one_more_hop(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (chosen,) = tune_folder(folder, DEV, GRID, Opening(), "x")
    assert chosen.before == pytest.approx(0.75)
    assert chosen.after == 1.0
    assert chosen.what == "2 hops, with an onward model"
    assert "recall@2  75.0, complete  50.0, 2 hops\n" in capsys.readouterr().out
    spec = json.loads((folder / "grls.json").read_text())["hops"]
    assert len(spec["onward"]) == len(FEATURES) + 1
    ranked = RankedHops(Mixed(), HopOptions(**spec | {"onward": tuple(spec["onward"])}))  # type: ignore[arg-type]
    found = ranked.retrieve(QUERIES, 2)
    assert [{hit.id for hit in hits} for hits in found] == [set(own) for own in GOLD]


def test_the_stored_model_is_that_of_all_queries(folder: Path) -> None:
    tune_folder(folder, DEV, GRID, Opening(), "x")
    stored = load_retriever(folder)
    assert isinstance(stored, RankedHops)
    seen: list[SeenHop] = []
    retriever: Any = Mixed()
    hops = HopOptions("ranked", max=2)
    RankedHops(retriever, hops, stop=Onward.of(retriever, hops, seen)).retrieve(QUERIES, 2)
    assert learn_onward(seen, [set(own) for own in GOLD]) == stored.hops.onward


def test_what_the_queries_cannot_tell_is_not_learned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = DevQueries("data", "dev", QUERIES[:8], GOLD[:8], Mixed.corpus)
    tune_folder(folder, few, GRID, Opening(), "x")
    tune_folder(folder, DEV, replace(GRID, onward=False), Opening(), "x")
    assert "onward" not in capsys.readouterr().out
    assert "onward" not in (folder / "grls.json").read_text()


def test_a_killed_run_goes_on_with_what_it_has_measured(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "whole")
    whole = tune_folder(tmp_path / "whole", DEV, GRID, Opening(), "x")
    with monkeypatch.context() as patched:
        patched.setattr("grls.tune.run.update_spec", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune_folder(folder, DEV, GRID, Opening(), "x")
    monkeypatch.setattr(RankedHops, "retrieve_by_hops", Mock(side_effect=AssertionError))
    assert tune_folder(folder, DEV, GRID, Opening(), "x") == whole
    assert (folder / "grls.json").read_bytes() == (tmp_path / "whole" / "grls.json").read_bytes()


def test_a_tuned_folder_is_tuned_again_as_the_first_time(folder: Path) -> None:
    first, second = (tune_folder(folder, DEV, GRID, Opening(), "x")[0] for _ in range(2))
    assert first == second


def test_what_tuning_has_found_is_not_searched_again(folder: Path) -> None:
    """The first hop is the only search beyond: for a ranking that is longer than what hops find."""
    found: dict[Any, Any] = {}
    tune_folder(folder, DEV, GRID, Opening(), "x", found=found)
    spec = json.loads((folder / "grls.json").read_text())["hops"]
    hops = HopOptions(**spec | {"onward": tuple(spec["onward"])})  # type: ignore[arg-type]
    kept = dict(found)
    ranked = RankedHops(Mixed(), hops, found).retrieve(QUERIES, 5)
    assert found == kept
    assert ranked == RankedHops(Mixed(), hops).retrieve(QUERIES, 5)
