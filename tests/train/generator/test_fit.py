"""Both stages through the real commands; options of the fit."""

import re
from pathlib import Path

import pytest
import torch
from train_helpers import arguments, callback, logged, train

from grls.cli import main
from grls.models.load.generators import Pretrained


def goes_on_from(model: Path, options: list[str]) -> list[str]:
    kept = [option for option in options if not option.startswith("--model.generator")]
    at = kept.index("retrieve") + 1
    source = [
        "--model.generator=Pretrained",
        f"--model.generator.name_or_path={model}",
    ]
    return [*kept[:at], *source, *kept[at:]]


@pytest.fixture(scope="module")
def stages(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Output folders of memorise and retrieve, one after the other."""
    root = tmp_path_factory.mktemp("stages")
    memorise = train(
        "memorise", data, root / "memorise", "--trainer.max_epochs=20",
        "--trainer.check_val_every_n_epoch=10", "--model.learning_rate=1e-2",
    )  # fmt: skip
    options = arguments(
        "retrieve", data, root / "retrieve", "--trainer.max_epochs=12", "--trainer.check_val_every_n_epoch=4",
        "--model.learning_rate=6e-3", "--recall.hops=4", "--recall.k=2",
    )  # fmt: skip
    assert main(["train", *goes_on_from(memorise / "model", options)]) == 0
    return memorise, root / "retrieve"


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_losses_fall_and_the_corpus_is_memorised(stages: tuple[Path, Path]) -> None:
    for output in stages:
        losses = [loss for _, loss in sorted(logged(output, "train_loss").items())]
        assert mean(losses[-10:]) < 0.5 * mean(losses[:10])
    recall = logged(stages[0], "dev_recall")
    assert max(recall.values()) >= 0.9
    assert set(logged(stages[1], "dev_f1")) == set(logged(stages[1], "dev_recall"))


def test_the_model_folder_is_the_best_checkpoint(stages: tuple[Path, Path]) -> None:
    for output in stages:
        best = torch.load(output / "checkpoints" / "best.ckpt", weights_only=True)
        last = torch.load(output / "checkpoints" / "last.ckpt", weights_only=True)
        recall, loss = logged(output, "dev_recall"), logged(output, "dev_loss")
        highest = [step for step in sorted(recall) if recall[step] == max(recall.values())]
        assert best["global_step"] == min(highest, key=lambda step: loss[step]) + 1
        assert last["global_step"] == max(logged(output, "train_loss")) + 1
        saved = Pretrained(str(output / "model")).load().model.state_dict()
        for name, value in saved.items():
            assert torch.equal(value, best["state_dict"][f"model.{name}"]), name
        assert not [name for name in best["state_dict"] if not name.startswith("model.")]


def test_steps_that_dev_never_measured_are_told(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("--trainer.max_steps=3", "--trainer.limit_train_batches=3", "--trainer.val_check_interval=2")
    train("memorise", data, tmp_path / "run", *options, "--trainer.check_val_every_n_epoch=1")
    assert "dev_recall was measured last at step 2 of 3" in caplog.text
    assert torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 3


def test_a_run_that_never_looks_at_dev_tells_so_and_what_it_replaces(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--trainer.max_steps=1", "--trainer.limit_train_batches=3", "--trainer.val_check_interval=1.0")
    output = train("memorise", data, tmp_path / "run", *options)
    assert "dev_recall was never measured" in caplog.text
    assert f"{output / 'model'}: the model of step 1 of 1\n" in capsys.readouterr().out
    caplog.clear()
    train("memorise", data, output, "--trainer.max_steps=3", "--trainer.val_check_interval=3")
    assert f"{output / 'model'} is of an earlier run; this one replaces it when it ends." in caplog.text
    assert "never measured" not in caplog.text
    assert "measured last" not in caplog.text
    assert f"{output / 'model'}: the model of step 3 of 3, dev_recall " in capsys.readouterr().out


def test_averaged_weights_are_measured_and_written(data: Path, tmp_path: Path) -> None:
    """The average of the first step alone: dev stays as it was, while the trained weights go on."""
    average = callback("lightning.pytorch.callbacks.EMAWeightAveraging", decay=1.0)
    output = train("memorise", data, tmp_path / "run", average)
    for name in ("dev_recall", "dev_loss"):
        assert len(set(logged(output, name).values())) == 1, name
    last = torch.load(output / "checkpoints" / "last.ckpt", weights_only=True)
    saved = Pretrained(str(output / "model")).load().model.state_dict()
    for name, value in saved.items():
        assert torch.equal(value, last["state_dict"][f"model.{name}"]), name
    trained = last["current_model_state"]
    assert not all(torch.equal(value, trained[f"model.{name}"]) for name, value in saved.items())
    train("memorise", data, output, average, "--resume=true")


def test_without_a_best_checkpoint_the_last_model_is_written(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    output = train("memorise", data, tmp_path / "run", "--checkpoint.monitor=null")
    assert "measured" not in caplog.text
    assert capsys.readouterr().out.splitlines() == [f"{output / 'model'}: the model of step 9 of 9"]


def test_without_a_terminal_a_line_tells_of_step_loss_and_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grls.io.progress.EVERY", 0.0)
    train("memorise", data, tmp_path / "o", "--trainer.max_epochs=2")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("train ")]
    steps = len(lines)
    assert steps >= 2
    number = r"\d+\.\d+"
    for step, line in enumerate(lines, 1):
        told = rf"train {step} of {steps} steps, epoch [12], loss {number}, [\d.]+ a second, \d+ s left"
        assert re.fullmatch(told, line), line


def test_dropout_is_on_where_a_model_was_loaded(
    stages: tuple[Path, Path], data: Path, tmp_path: Path
) -> None:
    """transformers loads in eval mode. All examples twice, and nearly no learning: only dropout differs."""
    still = ["--model.learning_rate=1e-12", "--trainer.max_epochs=2", "--data.batch_size=30"]
    options = arguments("retrieve", data, tmp_path / "run", *still)
    assert main(["train", *goes_on_from(stages[0] / "model", options)]) == 0
    first, second = logged(tmp_path / "run", "train_loss").values()
    assert first != pytest.approx(second, abs=1e-4)
