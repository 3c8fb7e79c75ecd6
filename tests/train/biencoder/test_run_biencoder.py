"""A bi-encoder that is trained from Python: result, reports and the limit of time."""

from pathlib import Path
from typing import Any

import pytest
from biencoder_helpers import logged

from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.run import run_biencoder
from grls.train.core.clock import TrainingClock, TrainingResult, TrainingStep
from grls.train.options import BiEncoderOptions, BiEncoderTraining

FIT = BiEncoderOptions(epochs=3, batch_size=4, learning_rate=1e-2, k=1, device="cpu")
"""30 pairs, 4 a batch: 8 steps an epoch."""


def trained(
    place: Path, output: Path, fit: BiEncoderOptions = FIT, clock: TrainingClock | None = None, **more: Any
) -> TrainingResult:
    data, source = str(place / "data"), str(place / "bert")
    return run_biencoder(
        BiEncoderTraining(data=data, source=source, output=str(output), fit=fit, **more), clock
    )


@pytest.fixture(scope="module")
def whole(place: Path) -> tuple[TrainingResult, list[TrainingStep]]:
    steps: list[TrainingStep] = []
    return trained(place, place / "whole", clock=TrainingClock("biencoder", meter=steps.append)), steps


def test_a_run_whose_time_is_up_keeps_the_best_and_goes_on(
    place: Path, tmp_path: Path, whole: tuple[TrainingResult, list[TrainingStep]],
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder,
) -> None:  # fmt: skip
    time = [0.0]

    def meter(step: TrainingStep) -> None:
        time[0] = float(step.step)

    clock = TrainingClock("biencoder", 13.5, meter, now=lambda: time[0])
    ended = trained(place, tmp_path, clock=clock)
    assert (ended.steps, ended.time_is_up) == (13, True)
    assert sorted(logged(tmp_path, "dev_recall")) == [8, 13]
    assert ended.best == max(logged(tmp_path, "dev_recall").values())
    assert BiEncoderModel.load(str(ended.model), device="cpu").stages[-1] == "biencoder"
    assert capsys.readouterr().out == ""  # the meter's reports are the only ones
    assert not [warning for warning in recwarn if "eval mode" in str(warning.message)]

    rest = trained(place, tmp_path, resume=True)
    assert (rest.steps, rest.time_is_up) == (24, False)
    losses = logged(place / "whole", "train_loss")
    went_on = logged(tmp_path, "train_loss")
    assert [went_on[step] for step in range(1, 13)] == [losses[step] for step in range(1, 13)]
    again = trained(place, tmp_path, resume=True)  # it is done
    assert (again.steps, again.best) == (24, rest.best)
