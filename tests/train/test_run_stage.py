"""Stages that are trained from Python: results, the limit of time, reports and errors."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from train_helpers import arguments, logged

from grls.errors import ConfigError
from grls.models.load.generators import Pretrained
from grls.train.core.clock import TrainingClock, TrainingResult, TrainingStep
from grls.train.options import read_stage
from grls.train.training import train


def options(data: Path, output: Path, **more: Any) -> dict[str, Any]:
    """The options of a tiny run as a mapping: 30 examples, 4 a batch, 3 epochs: 24 steps."""
    words = arguments("retrieve", data, output)[1:]
    return dict(word[2:].split("=", 1) for word in words) | more


def retrieve(options: dict[str, Any], *recipes: str, **limits: Any) -> TrainingResult:
    return train(read_stage("retrieve", recipes, options), TrainingClock("retrieve", **limits))


def a_second_a_step() -> dict[str, Any]:
    """Options of a clock whose time passes only by steps."""
    time = [0.0]

    def meter(step: TrainingStep) -> None:
        time[0] = float(step.step)

    return {"meter": meter, "now": lambda: time[0]}


@pytest.fixture(scope="module")
def whole(data: Path) -> tuple[Path, TrainingResult, list[TrainingStep]]:
    steps: list[TrainingStep] = []
    output = data.parent / "whole"
    return output, retrieve(options(data, output), meter=steps.append), steps


def test_the_result_says_where_the_model_is_and_how_good(
    whole: tuple[Path, TrainingResult, list[TrainingStep]],
) -> None:
    output, result, steps = whole
    assert (result.model, result.logs) == (output / "model", output / "logs" / "version_0")
    assert (result.steps, result.examples, result.monitor) == (24, 30, "dev_recall")
    assert result.best == max(logged(output, "dev_recall").values())
    assert 0 < result.seconds < 300
    assert not result.time_is_up
    assert Pretrained(str(result.model)).load()[0] is not None
    assert [(step.stage, step.step, step.of) for step in steps] == [("retrieve", n, 24) for n in range(25)]
    assert (steps[0].seconds_left, steps[-1].seconds_left) == (None, 0)


def test_a_run_whose_time_is_up_has_a_model_and_goes_on_to_the_same_losses(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    whole: tuple[Path, TrainingResult, list[TrainingStep]],
) -> None:
    capsys.readouterr()
    ended = retrieve(options(data, tmp_path / "run"), max_seconds=13.5, **a_second_a_step())
    assert capsys.readouterr() == ("", "")  # the meter's reports are the only ones
    assert (ended.steps, ended.time_is_up) == (13, True)
    assert sorted(logged(tmp_path / "run", "dev_recall")) == [7, 12]  # once more, at the end
    assert ended.best is not None
    assert (ended.model / "config.json").is_file()

    rest = retrieve(options(data, tmp_path / "run", resume=True))
    assert (rest.steps, rest.time_is_up) == (24, False)
    losses = logged(whole[0], "train_loss")
    assert list(logged(tmp_path / "run", "train_loss").values()) == [losses[step] for step in range(13)]
    went_on = list(logged(tmp_path / "run", "train_loss", 1).values())
    assert went_on == pytest.approx([losses[step] for step in range(13, 24)], abs=1e-6)


def test_dev_is_measured_at_the_end_of_the_time_however_rarely_it_is_otherwise(
    data: Path, tmp_path: Path
) -> None:
    rarely: dict[str, Any] = {"trainer.check_val_every_n_epoch": 3, "trainer.more": {"min_epochs": 2}}
    rarely["trainer.accumulate_grad_batches"] = 2
    given = options(data, tmp_path / "run", **rarely)
    ended = retrieve(given, max_seconds=3.5, **a_second_a_step())
    assert (ended.steps, ended.time_is_up) == (3, True)
    assert ended.best is not None
    assert list(logged(tmp_path / "run", "dev_recall")) == [2]


def test_recipes_and_values_of_all_types(data: Path, tmp_path: Path) -> None:
    given = options(data, tmp_path / "run") | {
        "trainer.max_epochs": 1, "data.data": data, "recall": {"k": 2, "beams": 3},
        "trainer.limit_train_batches": 2, "data.multistep": False, "data.done": False,
    }  # fmt: skip
    assert retrieve(given, "retrieve").steps == 2


@pytest.mark.parametrize(
    ("more", "recipes", "told"),
    [
        ({}, ["retreive"], "no recipe of that name. Near names: .*retrieve"),
        ({"data.batch_sise": 3}, [], "did you mean data.batch_size?"),
        ({"resume": True}, [], "last.ckpt"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_an_error_of_grls(
    data: Path, tmp_path: Path, more: dict[str, Any], recipes: list[str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        retrieve(options(data, tmp_path / "run", **more), *recipes)
    assert not (tmp_path / "run" / "model").exists()


def test_ctrl_c_stays_ctrl_c(data: Path, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)

    def press(step: TrainingStep) -> None:
        if step.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrieve(options(data, tmp_path / "run"), meter=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert torch.is_grad_enabled()
