"""What training refuses before it begins, and what it survives."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
from failing import fails
from full_disk import full_disk
from small_data import scratch, write_small
from train_helpers import arguments, callback, flip, train

from grls.cli import main
from grls.errors import MismatchError, WriteError
from grls.io.files import read_json
from grls.train.core.checkpoints import AtomicCheckpointIO
from grls.train.generator.module import Retrieve
from grls.train.options import RetrieveModelOptions

LIGHTNING = "lightning.pytorch.callbacks"


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set, and the output of a run of one epoch on it."""
    root = tmp_path_factory.mktemp("halted")
    data = write_small(root / "data")
    return data, train("retrieve", data, root / "run", "--trainer.max_epochs=1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small(tmp_path / "data")


def refused(capsys: pytest.CaptureFixture[str], stage: str, data: Path, *more: str) -> str:
    """The one line with which a run ends before its first step; it leaves nothing."""
    output = data.parent / "run"
    before = sorted(output.rglob("*"))
    line = fails(capsys, "train", *arguments(stage, data, output, *more))
    assert sorted(output.rglob("*")) == before
    return line


@pytest.mark.parametrize(
    ("stage", "more", "named"),
    [
        ("memorise", ["--data.target=rest"], "needs target `whole`"),
        ("memorise", ["--data.target=rest", "--model.loss=full"], "--checkpoint.monitor dev_recall"),
        ("retrieve", ["--checkpoint.monitor=dev_f1"], "--recall.hops"),
        ("retrieve", ["--resume=true"], "last.ckpt: there is no checkpoint to resume from"),
        (
            "retrieve",
            ["--trainer.max_epochs=-1", "--trainer.more={max_time: 00:00:00:05}"],
            "number of steps",
        ),
        (
            "memorise",
            ["--trainer.limit_train_batches=0"],
            "raise --trainer.max_epochs or --trainer.max_steps",
        ),
        (
            "memorise",
            ["--trainer.more={enable_checkpointing: false}"],
            "cannot train with --trainer.more '{\"enable_checkpointing\": false}': Trainer was configured",
        ),
        (
            "memorise",
            ["--trainer.accelerator=abacus"],
            "Lightning cannot train with --trainer.accelerator abacus: ",
        ),
        (
            "memorise",
            [callback(f"{LIGHTNING}.BackboneFinetuning")],
            "--trainer.callbacks BackboneFinetuning needs a module with a `backbone`",
        ),
        (
            "memorise",
            [callback("EarlyStopping", monitor="dev_loss", mode="foo")],
            "--trainer.callbacks EarlyStopping: `mode` can be min, max, got foo.",
        ),
        ("memorise", ["--trainer.more={max_time: 5}"], '"max_time": 5}'),
        ("memorise", ["--trainer.more={plugins: []}"], "--trainer.more: plugins is set by grls"),
        (
            "memorise",
            ["--trainer.more={callbacks: []}"],
            "--trainer.more: callbacks is --trainer.callbacks",
        ),
        (
            "memorise",
            [callback(f"{LIGHTNING}.StochasticWeightAveraging", swa_lrs=0.1)],
            "--trainer.callbacks StochasticWeightAveraging changes the weights after the last measurement",
        ),
    ],
)
def test_options_that_cannot_work(
    data: Path, capsys: pytest.CaptureFixture[str], stage: str, more: list[str], named: str
) -> None:
    assert named in refused(capsys, stage, data, *more)


def test_a_file_that_is_no_checkpoint(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = data.parent / "run" / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    last.write_bytes(b"no checkpoint")
    assert "cannot be read as a checkpoint" in refused(capsys, "retrieve", data, "--resume=true")
    for content in (torch.zeros(2), {"state_dict": {}}):
        torch.save(content, last)
        assert f"{last} holds no state of a run" in refused(capsys, "retrieve", data, "--resume=true")


def test_a_place_that_cannot_be_written_is_told_before_the_work(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    told = fails(capsys, "train", *arguments("retrieve", data, tmp_path / "file" / "run"))
    assert "cannot write" in told


def test_what_other_libraries_cannot_write_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raises(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "logs/metrics.csv")

    monkeypatch.setattr("grls.cli.Command.run", raises)
    assert "logs/metrics.csv" in fails(capsys, "train", "retrieve")


@pytest.mark.parametrize(
    ("stage", "more", "named"),
    [
        ("retrieve", "--model.generator.d_model=16", "had --model.generator.d_model 32, now it is 16"),
        ("retrieve", "--model.optimizer=adafactor", "had --model.optimizer adamw, now it is 'adafactor'"),
        ("memorise", "--data.target=whole", "had --data.by_hop false, now it is None"),
    ],
)
def test_a_checkpoint_of_another_run(
    stage: str,
    more: str,
    named: str,
    tmp_path: Path,
    halted: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, run = halted
    told = fails(capsys, "train", *arguments(stage, data, run, more, "--resume=true"))
    assert named in told


def test_a_checkpoint_of_another_model_in_the_same_place(data: Path) -> None:
    module = Retrieve(RetrieveModelOptions(generator=scratch(data)))
    weights = module.state_dict()
    for other, named in (
        (
            {**weights, "model.shared.weight": torch.zeros(2, 3)},
            r"other sizes \(model.shared.weight has \[2, 3\]",
        ),
        ({**weights, "model.more": torch.zeros(1)}, r"another model \(it has the weights model.more"),
    ):
        with pytest.raises(MismatchError, match=named):
            module.on_load_checkpoint({"state_dict": other})


@pytest.mark.parametrize("file", ["last.ckpt", "best.ckpt"])
def test_a_damaged_checkpoint(
    file: str,
    halted: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One bit: a last one is refused, and a best one is not written as a model."""
    data, run = halted[0], shutil.copytree(halted[1], tmp_path / "run")
    folder = run / "checkpoints"
    flip(folder / file)
    given = arguments("retrieve", data, run, "--resume=true", "--trainer.max_epochs=1")
    if file == "last.ckpt":
        told = fails(capsys, "train", *given)
        assert f"{folder / file} cannot be read as a checkpoint" in told
        assert f"copy {folder / 'best.ckpt'}, which is whole" in told
        return
    state = torch.load(folder / "last.ckpt", weights_only=True)
    for kept in state["callbacks"].values():
        if kept.get("best_model_path"):
            kept["best_model_path"] = str(folder / file)
            kept["dirpath"] = str(folder)
    torch.save(state, folder / "last.ckpt")
    assert main(["train", *given]) == 0
    assert f"{folder / file} cannot be read as a checkpoint" in caplog.text


def test_an_empty_split(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("dev", "train"):
        (data / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n")
        assert f"{split}.tsv: the split holds no query" in refused(capsys, "retrieve", data)


def test_a_model_folder_that_is_not_ours(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thesis = data.parent / "run" / "model" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    assert "is not replaced" in refused(capsys, "retrieve", data)
    assert thesis.read_text() == "years of work"
    assert not list((data.parent / "run").glob("logs*"))  # before it trains


def test_the_rest_of_a_passage_is_learned(data: Path) -> None:
    options = ["--data.target=rest", "--model.loss=full", "--checkpoint.monitor=dev_loss"]
    output = train("memorise", data, data.parent / "run", *options, "--trainer.max_epochs=1")
    assert (output / "model" / "config.json").is_file()


def test_limits_travel_with_the_model(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--data.max_passage_tokens=4", "--trainer.max_epochs=1"]
    output = train("memorise", data, data.parent / "run", *short)
    for more, limit in (([], 4), (["--limits.passage=3"], 3)):
        folder = data.parent / f"retriever{limit}"
        given = [output / "model", "--corpus", data, "--output", folder, *more]
        assert main(["index", *map(str, given)]) == 0
        assert read_json(folder / "grls.json")["limits"]["passage"] == limit


def test_a_full_disk_keeps_the_earlier_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    with full_disk(50_000), pytest.raises(WriteError, match=r"last\.ckpt"):
        AtomicCheckpointIO().save_checkpoint({"step": 2, "weights": torch.zeros(10**6)}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_weights_that_are_no_numbers_at_the_end_are_not_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = [callback("train_helpers.SpoilAtEnd"), "--trainer.max_steps=1", "--checkpoint.monitor=null"]
    told = fails(capsys, "train", *arguments("retrieve", data, tmp_path / "run", *spoilt))
    assert f"are not finite, so nothing was written to {tmp_path / 'run' / 'model'}." in told
    assert "Lower --model.learning_rate" in told
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(
    ("what", "step", "kept"),
    [("loss", 11, 10), ("gradient", 8, 5), ("gradient", 10, 5)],
)
def test_a_step_that_is_no_number_ends_the_run(
    what: str, step: int, kept: int, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, not at the next look at dev; also before dev (step 8) and before a checkpoint (step 10)."""
    spoilt = [callback("train_helpers.Spoil", step=step, what=what), "--last.every_n_train_steps=5"]
    told = fails(capsys, "train", *arguments("retrieve", data, tmp_path / "run", *spoilt))
    value = "the loss is nan" if what == "loss" else "the gradient is not finite"
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert f"diverged: {value} at step {step}. The checkpoint {last}, from before, is intact." in told
    assert "Lower --model.learning_rate" in told
    state = torch.load(last, weights_only=True)
    assert state["global_step"] == kept
    assert all(value.isfinite().all() for value in state["state_dict"].values())
    assert not (tmp_path / "run" / "model").exists()
