"""What a run that left something out says of it: on its page, on its card and in ``fit.json``."""

import json
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data
from test_run_fit import known

from grls.fitting import comparing, planner, splits, tuning
from grls.fitting.account import account_of
from grls.fitting.clock import TimeIsUp
from grls.fitting.comparing import Pace, dropped
from grls.fitting.run import fit_dataset


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set; the tuning of BM25's hops is ended by the time, which leaves several hops."""

    def ended(folder: Path, *_: Any) -> Any:
        raise TimeIsUp

    monkeypatch.setattr(planner, "known_speeds", known)
    monkeypatch.setattr(tuning, "tune_folder", ended)
    return str(write_fit_data(tmp_path / "data"))


def said(output: Path) -> tuple[dict[str, Any], str, str]:
    """``fit.json``, page and card."""
    content = json.loads((output / "fit.json").read_text())
    return content, (output / "report.md").read_text(), (output / "README.md").read_text()


def test_a_system_that_is_dropped_as_too_slow_is_named_with_the_reason(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It vanished, page and card said that every system was ranked, and that fusions were no better."""
    paces = {"bm25": Pace(0.0, 0.0), "bm25-hops": Pace(2.0, 5000.0)}
    monkeypatch.setattr(comparing, "timed", lambda _, system, *more: paces[system])
    fitted = fit_dataset(data, tmp_path / "out", fit_options(**WORDS_ALONE, budget="1h"))
    assert [*fitted.metrics] == ["bm25"]
    content, page, card = said(tmp_path / "out")
    why = "too slow for the time that was left (2 s to open it, 5000.0 s a query)"
    assert content["plan"]["left_out"]["compare bm25-hops"] == why
    assert f"| rank queries with bm25-hops | {why} |" in page
    assert f"- rank queries with bm25-hops: {why}\n" in card
    for text in (page, card):
        assert "with every system" not in text
        assert "rank 4 dev and 3 test queries with 1 system" in text
        assert "none is better than its members" not in text
    assert "- fuse the systems, with weights from dev: there was nothing to fuse\n" in card
    shown = capsys.readouterr().out
    assert f"bm25-hops: not compared: {why}\n" in shown
    assert "fusion: there was nothing to fuse\n" in shown


def test_hops_whose_tuning_was_ended_are_compared_untuned_and_that_is_said(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "_LARGE", 4)
    fitted = fit_dataset(data, tmp_path / "out", fit_options(**WORDS_ALONE), shown=False)
    assert [*fitted.metrics] == ["bm25", "bm25-hops"]
    content, page, card = said(tmp_path / "out")
    why = "untuned: the time was up before it was done"
    assert content["plan"]["left_out"]["tune bm25-hops"] == why
    assert f"| hops of BM25, on 2 dev queries | {why} |" in page
    assert f"- hops of BM25, on 2 dev queries: {why}\n" in card
    assert "- fuse the systems, with weights from dev: there was nothing to fuse\n" in card  # both are BM25
    ranked = "rank 2 tune, 2 dev and 3 test queries with every system"
    assert ranked in card
    assert ranked in [stage["what"] for stage in content["plan"]["stages"]]


def test_a_system_that_was_cut_off_while_it_ranked_is_in_the_account() -> None:
    stages = [{"name": "compare", "system": "", "what": "rank 9 dev queries with every system"}]
    account = account_of(
        {
            "plan": {"stages": stages, "skipped": [], "left_out": {"compare hybrid": "the time was up"}},
            "compared": "rank 9 dev queries with 1 system",
            "step_seconds": {"compare bm25": 3.0, "compare hybrid": 4.0},
            "same": {},
        }
    )
    assert account.done == [("rank 9 dev queries with 1 system", "7 s")]
    assert account.skipped == [("rank queries with hybrid", "the time was up")]


def test_a_system_that_there_was_no_time_to_ask_says_so() -> None:
    paces = {"bm25": Pace(0.0, 0.0), "hybrid": Pace(9.0, 1.25)}
    assert dropped(["bm25", "dense", "hybrid"], paces, ["bm25"]) == {
        "dense": "the time was up before it was timed",
        "hybrid": "too slow for the time that was left (9 s to open it, 1.2 s a query)",
    }
