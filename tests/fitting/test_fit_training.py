"""A training of ``grls fit`` and its time, on a clock of 10 seconds a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grls.errors import ConfigError
from grls.fitting import training
from grls.fitting.journal import FitClock, FitProgress
from grls.fitting.search import Allowance, TimeIsUp
from grls.fitting.training import TimedTraining
from grls.train.core.clock import TrainingResult, TrainingStep


class Clock:
    """A machine under a load, and the trainings that it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.load = 0.0, 4.0
        self.asked: list[int] = []
        self.left: list[float] = []
        monkeypatch.setattr("grls.fitting.search.perf_counter", lambda: self.seconds)
        monkeypatch.setattr(training, "mean_load", lambda: self.load)

    def train(self, steps: int, resume: bool, left: float, meter: Callable[[Any], Any]) -> TrainingResult:
        self.asked.append(steps)
        for step in range(steps + 1):
            self.seconds += 10.0
            self.left.append(meter(TrainingStep("chains", step, steps, None)))
        return TrainingResult(Path(), Path(), "dev_recall", 0.5, steps, 9, 1.0, False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def timed(tmp_path: Path) -> TimedTraining:
    return TimedTraining(tmp_path / "x", 500, 4, FitProgress(tmp_path / "logs", FitClock(tmp_path), False))


def test_a_training_whose_steps_do_not_fit_begins_anew_with_fewer(clock: Clock, timed: TimedTraining) -> None:
    timed.run(40, clock.train, Allowance(250.0))
    assert timed.done == "16 of 40 steps"
    assert clock.asked == [40, 16]


def test_one_of_which_too_few_would_fit_is_not_begun_under_the_same_load(
    clock: Clock, timed: TimedTraining
) -> None:
    """27 of 84 steps were done, and no time was left to use them."""
    for seconds in (95.0, 40.0):
        with pytest.raises(TimeIsUp, match="of 40 steps would fit") as refused:
            timed.run(40, clock.train, Allowance(seconds))
        assert refused.value.seconds == 40.0
        assert clock.asked == [40]
    clock.load = 2.0
    with pytest.raises(TimeIsUp, match="of 40 steps would fit"):
        timed.run(40, clock.train, Allowance(95.0))
    assert clock.asked == [40, 40]


def test_a_training_hears_what_time_is_left(clock: Clock, timed: TimedTraining) -> None:
    timed.run(4, clock.train, Allowance(250.0))
    assert timed.done == "4 steps"
    assert clock.left == [240.0, 230.0, 220.0, 210.0, 200.0]


def resumed(timed: TimedTraining) -> None:
    """As if it was cut off after a checkpoint, begun with 20 steps."""
    (timed.folder / "checkpoints" / "step-2").mkdir(parents=True)
    (timed.folder / "steps.txt").write_text("20 steps\n")


def test_one_that_was_cut_off_goes_on_with_the_steps_that_it_was_begun_with(
    clock: Clock, timed: TimedTraining
) -> None:
    """Its time may be short: what is done stays."""
    resumed(timed)
    timed.run(40, clock.train, Allowance(100.0))
    assert timed.done == "20 of 40 steps"
    assert clock.asked == [20]


def test_a_checkpoint_that_cannot_be_used_begins_anew(clock: Clock, timed: TimedTraining) -> None:
    def train(steps: int, resume: bool, *more: Any) -> TrainingResult:
        if resume:
            raise ConfigError("the checkpoint is of other options")
        return clock.train(steps, resume, *more)

    resumed(timed)
    timed.run(40, train, Allowance(1000.0))
    assert timed.done == "20 of 40 steps"
    assert clock.asked == [20]


def test_nothing_stays_of_a_training_of_too_few_steps(clock: Clock, timed: TimedTraining) -> None:
    def few(steps: int, *more: Any) -> TrainingResult:
        return clock.train(min(steps, 2), *more)

    with pytest.raises(TimeIsUp, match="2 of 40 steps would fit"):
        timed.run(40, few, Allowance(1000.0))
    assert not timed.folder.exists()
