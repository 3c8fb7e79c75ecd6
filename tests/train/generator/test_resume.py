"""A run that is killed and resumed goes on to the same losses."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
from failing import fails
from process_group import together
from train_helpers import arguments, callback, logged, start, train

from grls.cli import main
from grls.errors import ConfigError
from grls.train.core.checkpoints import refuse_unfinished

# 30 examples, 4 a batch: 8 steps an epoch. Killed after step 13, in the middle of the second epoch; the last
# checkpoint is that of step 10, in the middle of it, too.
OFTEN = "--last.every_n_train_steps=5"
AT_ENDS = "--last.every_n_train_steps=8"
KILLED = callback("train_helpers.KillAfter", batches=13)
# The rate would depend on the number of epochs.
CONSTANT = ("--data.shuffle=true", "--model.schedule=constant", "--model.warmup=0")


@pytest.fixture(scope="module")
def halted(data: Path) -> tuple[Path, Path]:
    """The data, and the output of a run of one epoch on it."""
    return data, train("retrieve", data, data.parent / "halted", AT_ENDS, "--trainer.max_epochs=1", *CONSTANT)


@pytest.fixture(scope="module")
def whole(data: Path) -> Path:
    """The output of a run of three epochs in an order of its own, at a constant rate."""
    return train("retrieve", data, data.parent / "uninterrupted", *CONSTANT)


def test_a_run_that_sigterm_ends_does_not_look_done(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    politely = callback("train_helpers.KillAfter", batches=13, politely=True)
    ended = start(arguments("retrieve", data, tmp_path / "ended", OFTEN, politely))
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    last = tmp_path / "ended" / "checkpoints" / "last.ckpt"
    assert "go on from its last checkpoint with --resume true." in ended.stderr
    assert not (tmp_path / "ended" / "model").exists()
    again = fails(capsys, "train", *arguments("retrieve", data, tmp_path / "ended"))
    assert f"{last} is of a run that did not finish, or diverged: resume it with --resume true," in again


def test_before_the_first_checkpoint_sigterm_promises_none(data: Path, tmp_path: Path) -> None:
    early = callback("train_helpers.KillAfter", batches=2, politely=True)
    ended = start(arguments("retrieve", data, tmp_path / "ended", early))
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert "nothing was saved yet" in ended.stderr
    assert "--resume" not in ended.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_kill_9_and_resume_gives_the_losses_of_an_uninterrupted_run(
    data: Path, whole: Path, tmp_path: Path, workers: int
) -> None:
    losses = logged(whole, "train_loss")
    assert sorted(losses) == list(range(24))

    options = [*CONSTANT, f"--data.workers={workers}"]
    killed = ["train", *arguments("retrieve", data, tmp_path / "killed", *options, OFTEN, KILLED)]
    assert together(1, lambda: main(killed)) == [-signal.SIGKILL]
    last = tmp_path / "killed" / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 10

    resumed = train("retrieve", data, tmp_path / "killed", *options, OFTEN, "--resume=true")
    rest = logged(resumed, "train_loss", version=1)
    assert sorted(rest) == list(range(10, 24))
    assert rest == pytest.approx({step: losses[step] for step in rest}, abs=1e-6)
    for name in ("dev_loss", "dev_recall"):
        expected = logged(whole, name)
        assert logged(resumed, name, version=1) == pytest.approx(
            {step: expected[step] for step in (15, 23)}, abs=1e-6
        )


@pytest.mark.parametrize("limit", [(), ("--trainer.max_steps=24",)])
def test_resume_at_the_end_of_an_epoch(
    halted: tuple[Path, Path], whole: Path, tmp_path: Path, limit: tuple[str, ...]
) -> None:
    """The checkpoint of step 8 (Lightning has counted the epoch or not) starts the second epoch."""
    data, cut = halted[0], tmp_path / "cut"
    options = [*CONSTANT, *(limit or [AT_ENDS])]
    losses = logged(whole, "train_loss")
    if limit:
        train("retrieve", data, cut, *options, "--trainer.max_epochs=1")
    else:
        shutil.copytree(halted[1], cut)
    state = torch.load(cut / "checkpoints" / "last.ckpt", weights_only=True)["RetrieveData"]
    assert (state["epoch"], state["batches"]) == (1, 0)
    resumed = train("retrieve", data, cut, *options, "--resume=true")
    rest = logged(resumed, "train_loss", version=1)
    assert sorted(rest) == list(range(8, 24))
    assert rest == pytest.approx({step: losses[step] for step in rest}, abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("--data.batch_size=8", "resume with --data.global_batch_size 4, or"),
        ("--trainer.limit_train_batches=5", "--trainer.limit_train_batches null, now it is 5"),
        ("--trainer.accumulate_grad_batches=2", "--trainer.accumulate_grad_batches 1, now it is 2"),
        ("--data.done=false", "--data.done true, now it is False"),
        ("--model.loss=full", "--model.loss allowed, now it is 'full'"),
        ("--model.schedule=linear", "--model.schedule constant, now it is 'linear'"),
    ],
)
def test_a_run_is_not_resumed_with_other_batches_or_options(
    halted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: str, named: str
) -> None:
    """Where it stood in its epoch could not be told, or its losses would be others."""
    run = shutil.copytree(halted[1], tmp_path / "run")
    options = arguments("retrieve", halted[0], run, *CONSTANT, "--resume=true", changed)
    assert named in fails(capsys, "train", *options)


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("corpus.jsonl", "the lynx is calm .", "the lynx is still .", "corpus.jsonl"),
        ("queries.jsonl", '["otter-calm", "r0"]', '["r0", "otter-calm"]', "queries.jsonl (split train)"),
        ("qrels/dev.tsv", "\t1", "\t2", "qrels/dev.tsv"),
        ("queries.jsonl", "is the lynx kind ?", "is the lynx mild ?", None),  # a test query
    ],
)
def test_a_run_whose_data_has_changed_is_not_resumed(
    file: str,
    old: str,
    new: str,
    named: str | None,
    halted: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = shutil.copytree(halted[0], tmp_path / "data")
    text = (data / file).read_text()
    assert old in text
    (data / file).write_text(text.replace(old, new))
    same = [f"--model.generator.data={halted[0]}", "--trainer.max_epochs=1", "--resume=true"]
    given = arguments("retrieve", data, shutil.copytree(halted[1], tmp_path / "run"), *CONSTANT, *same)
    if named is None:
        assert main(["train", *given]) == 0
    else:
        assert f"{named} has changed since the run on {data} began" in fails(capsys, "train", *given)


def test_one_seed_decides_all(halted: tuple[Path, Path], tmp_path: Path) -> None:
    data, run = halted

    def losses(name: str, *more: str) -> list[float]:
        short = ["--trainer.max_steps=3", "--trainer.more={limit_val_batches: 0}", *more]
        options = [o for o in arguments("retrieve", data, tmp_path / name, *short) if "generator" not in o]
        pretrained = ["--model.generator=Pretrained"]
        pretrained += [f"--model.generator.name_or_path={run / 'model'}"]
        assert main(["train", *options, *pretrained]) == 0
        return list(logged(tmp_path / name, "train_loss").values())

    first = losses("a", "--seed_everything=0")
    assert losses("b", "--seed_everything=1") != first
    assert losses("c", "--seed_everything=0") == first


def test_only_a_run_of_a_constant_rate_is_resumed_for_more_epochs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--trainer.limit_train_batches=1", "--model.schedule=constant"]
    for name, rate, more in (
        ("steady", ["--model.warmup=0"], "--trainer.max_epochs=2"),
        ("rising", ["--model.warmup=0.5"], "--trainer.max_steps=5"),
        ("falling", ["--model.schedule=linear"], "--trainer.max_epochs=2"),
    ):
        run, options = tmp_path / name, [*short, *rate, "--trainer.max_epochs=1"]
        train("retrieve", data, run, *options)
        again = arguments("retrieve", data, run, *options, more, "--resume=true")
        if name == "steady":
            assert main(["train", *again]) == 0
            assert len(logged(run, "train_loss", version=1)) == 1
        else:
            told = fails(capsys, "train", *again)
            assert f"the run in {run} had {more[:-2]} {'1' if 'epochs' in more else '-1'}, now it is" in told


def test_a_job_that_slurm_requeues_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.parent.mkdir()
    last.touch()
    with pytest.raises(ConfigError, match="did not finish, or diverged"):
        refuse_unfinished(str(tmp_path))
    (tmp_path / "hpc_ckpt_1.ckpt").touch()
    with pytest.raises(ConfigError, match=r"hpc_ckpt_1\.ckpt is of a run that did not finish"):
        refuse_unfinished(str(tmp_path))  # at home nobody goes on with it by itself
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    refuse_unfinished(str(tmp_path))
