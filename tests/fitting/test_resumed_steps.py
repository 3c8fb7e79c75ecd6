"""A step that was cut off goes on with what it has done."""

from pathlib import Path
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data
from test_run_fit import Killed

from grls.fitting import folders, steps, tuning
from grls.fitting.clock import FitClock
from grls.fitting.journal import FitJournal
from grls.fitting.plan import Stage
from grls.fitting.progress import FitProgress
from grls.fitting.steps import FitSteps
from grls.fitting.work import FitWork
from grls.tune import hops

BUDGET = fit_options(**WORDS_ALONE, budget="20m")


def test_a_training_that_was_cut_off_goes_on_though_little_time_is_left(tmp_path: Path) -> None:
    """It may need no more, and all that it has learned would be lost."""
    work = FitWork(tmp_path, BUDGET, "dev", FitProgress(tmp_path / "stages", False))
    now = [0.0]
    made = FitSteps(work, None, FitClock(1000.0, 0.0, lambda: now[0]))  # type: ignore[arg-type]
    train = Stage("biencoder", "", {}, 100.0, system="dense")

    def left_out() -> bool:
        return "left_out" in str(made._maker(train, 5.0)[0]())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.trainings, "train_encoder", lambda *_: {})
        assert left_out()
        (tmp_path / "stages" / "biencoder" / "checkpoints").mkdir(parents=True)
        assert not left_out()
        now[0] = 990.0
        assert left_out()


TUNE = Stage(
    "tune",
    "hops of BM25",
    {"split": "dev", "limit": 4, "grid.k": 2, "device": "cpu", "precision": "float32", "hops.steps": "ranked",
     "hops.max": 2, "grid.hops": [1, 2], "grid.hop_temperatures": [1.0, 0.5]},
    100.0,
    system="bm25-hops",
)  # fmt: skip


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitSteps:
    """The steps of a run whose tuning of BM25's hops was killed after its first measurement."""
    monkeypatch.setattr(tuning, "_LEAST", 1)
    work = FitWork(tmp_path / "out", BUDGET, "dev", FitProgress(tmp_path / "out" / "stages", False))
    write_fit_data(work.output / "data")
    folders.make_words(work)
    made = FitSteps(work, FitJournal(tmp_path / "journal", {}), FitClock(1000.0))
    measured, times = hops._measured, [0]

    def cut_off(*given: Any) -> Any:
        times[0] += 1
        if times[0] == 2:
            raise Killed
        return measured(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hops, "_measured", cut_off)
        with pytest.raises(Killed):
            made._tuned(TUNE, 0.8)
    assert tuning.begun_tuning(work, TUNE).is_file()
    return made


def test_a_tuning_that_was_killed_goes_on_with_its_queries(tuned: FitSteps) -> None:
    """Less time was left, so fewer queries, with which the measurements so far could not go on."""
    assert tuned._tuned(TUNE, 0.6)["queries"] == 3
    assert tuned._tuned(TUNE, 0.6)["queries"] == 2  # nothing is begun now


def test_a_tuning_that_was_killed_with_other_queries_is_begun_anew(tuned: FitSteps) -> None:
    tuned.journal.keep("queries of tune bm25-hops", {"options": {}, "limit": 3})
    assert tuned._tuned(TUNE, 0.6)["queries"] == 2
    assert not tuning.begun_tuning(tuned.work, TUNE).exists()
