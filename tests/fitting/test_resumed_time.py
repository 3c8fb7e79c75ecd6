"""The time that a run has spent when it goes on after a kill."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data
from test_run_fit import Killed, killed_at, known

from grls.fitting import clock, folders, planner, run
from grls.fitting.clock import CLOCK, FitClock, kept_clock, spent_seconds
from grls.fitting.journal import FitJournal
from grls.fitting.run import fit_dataset

BUDGET = fit_options(**WORDS_ALONE, budget="20m")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fit_data(tmp_path_factory.mktemp("time") / "data")


def test_seconds_are_on_disk_while_a_run_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_WRITTEN", 0.01)
    (tmp_path / "stages").mkdir()
    now = [0.0]
    counted = FitClock(100.0, 7.0, lambda: now[0])
    with kept_clock(tmp_path, counted):
        now[0] = 20.0
        for _ in range(1000):
            if spent_seconds(tmp_path) == 27.0:
                break
            Event().wait(0.01)
        assert spent_seconds(tmp_path) == 27.0
    assert not (tmp_path / CLOCK).exists()
    now[0] = 30.0
    with pytest.raises(Killed), kept_clock(tmp_path, counted):
        raise Killed
    assert spent_seconds(tmp_path) == 37.0
    (tmp_path / CLOCK).write_text("{")
    assert spent_seconds(tmp_path) == 0.0


def test_measuring_and_a_step_that_was_cut_off_are_time_that_is_spent(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed took its budget anew for both."""
    now = [0.0]

    def passing(seconds: float, made: Any) -> Any:
        def later(*given: Any) -> Any:
            now[0] += seconds
            return made(*given)

        return later

    monkeypatch.setattr(run, "FitClock", lambda budget, spent: FitClock(budget, spent, lambda: now[0]))
    monkeypatch.setattr(planner, "known_speeds", passing(200.0, known))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "make_words", passing(300.0, folders.make_words))
        killed_at(["bm25"], patch)
        with pytest.raises(Killed):
            fit_dataset(str(data), tmp_path / "out", BUDGET, shown=False)
    now[0] = 0.0
    fitted = fit_dataset(str(data), tmp_path / "out", BUDGET, shown=False)
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["seconds"] >= 500.0
    assert not (tmp_path / "out" / CLOCK).exists()
    assert "bm25" in fitted.metrics


def test_the_time_of_a_run_that_is_begun_with_other_options_is_not_that_of_the_first(tmp_path: Path) -> None:
    journal = FitJournal(tmp_path / "out", {"k": 5})
    journal.begin()
    journal.keep("first plan", {})
    journal.close()
    (tmp_path / "out" / "stages").mkdir()
    (tmp_path / "out" / CLOCK).write_text('{"seconds": 900.0}')
    FitJournal(tmp_path / "out", {"k": 5}).close()
    assert spent_seconds(tmp_path / "out") == 900.0
    again = FitJournal(tmp_path / "out", {"k": 6})
    assert again.kept("first plan") is None
    assert spent_seconds(tmp_path / "out") == 0.0
    again.close()
