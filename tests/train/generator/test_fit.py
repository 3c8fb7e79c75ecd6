"""Both stages, index, retrieval and evaluation through the real commands; options of the fit."""

import json
import re
from pathlib import Path

import pytest
import torch
from train_helpers import arguments, callback, logged, train

from grls.cli import main
from grls.data.dataset import read_split
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


def test_logs_and_config_are_written(stages: tuple[Path, Path]) -> None:
    for output in stages:
        (version,) = (output / "logs").iterdir()
        assert {"metrics", "events", "config"} <= {file.name.split(".")[0] for file in version.iterdir()}
        assert next(version.glob("events*")).stat().st_size > 0


def test_from_training_to_a_report(
    stages: tuple[Path, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = tmp_path / "retriever", tmp_path / "run"
    assert main(["index", f"{stages[1] / 'model'}", f"--corpus={data}", f"--output={folder}"]) == 0
    options = [str(folder), f"--data={data}", f"--output={run}", "--hops.steps=dynamic"]
    assert main(["retrieve", *options, "--hops.max=3", "--k=4", "--device=cpu", "--split=train"]) == 0
    asked = [query.id for query in read_split(data, "train")[0]]
    lines = [json.loads(line) for line in Path(f"{run}.jsonl").read_text().splitlines()]
    assert len(lines) == len(asked) == 12
    ranked = [line.split() for line in Path(f"{run}.trec").read_text().splitlines()]
    assert {fields[0] for fields in ranked} == set(asked)
    assert all(len(fields) == 6 for fields in ranked)
    report = tmp_path / "report.json"
    capsys.readouterr()
    assert main(["evaluate", f"{run}.jsonl", f"--data={data}", "--split=train", f"--output={report}"]) == 0
    assert json.loads(report.read_text())
    assert "recall" in capsys.readouterr().out.lower()


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


def test_accumulated_gradients_step_less_often(data: Path, tmp_path: Path) -> None:
    """Eight batches of four, two a step: four steps, and the second batch sees the weights of the first."""
    options = ["--trainer.accumulate_grad_batches=2", "--model.learning_rate=0.05", "--model.warmup=0"]
    output = train("retrieve", data, tmp_path / "a", "--trainer.max_epochs=1", *options, dropout=0.0)
    last = torch.load(output / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 4
    state = last["RetrieveData"]
    assert (state["epoch"], state["batches"]) == (1, 0)


def test_dropout_is_on_where_a_model_was_loaded(
    stages: tuple[Path, Path], data: Path, tmp_path: Path
) -> None:
    """transformers loads in eval mode. All examples twice, and nearly no learning: only dropout differs."""
    still = ["--model.learning_rate=1e-12", "--trainer.max_epochs=2", "--data.batch_size=30"]
    options = arguments("retrieve", data, tmp_path / "run", *still)
    assert main(["train", *goes_on_from(stages[0] / "model", options)]) == 0
    first, second = logged(tmp_path / "run", "train_loss").values()
    assert first != pytest.approx(second, abs=1e-4)


def test_the_full_loss_and_adafactor_train_too(data: Path, tmp_path: Path) -> None:
    options = ["--model.loss=full", "--model.optimizer=adafactor", "--trainer.max_epochs=8"]
    found = logged(train("memorise", data, tmp_path, *options, dropout=0.0), "train_loss")
    ordered = [loss for _, loss in sorted(found.items())]
    assert mean(ordered[-3:]) < 0.9 * mean(ordered[:3])
