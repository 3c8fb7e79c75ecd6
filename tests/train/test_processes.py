"""Trainings on two and three processes: the losses of one process, and a run that is resumed."""

import os
import subprocess
import sys
from pathlib import Path

import biencoder_helpers
import pytest
import torch
from models_without_dropout import still_bert
from process_group import together
from train_helpers import arguments, callback, logged, same

from grls.cli import main
from grls.errors import ConfigError
from grls.train.core.processes import averaged, by_first, gathered, mean_over_processes, summed

GLOBAL = ["--data.global_batch_size=8", "--trainer.max_epochs=2"]
"""30 examples, 8 a batch: the last one has 6, and three processes have 3, 3 and 2 of 8."""


def test_a_generator_has_the_losses_of_one_process_and_resumes_on_another_number(
    root: Path, tmp_path: Path
) -> None:
    def options(name: str, *more: str) -> list[str]:
        return ["train", *arguments("retrieve", root / "data", tmp_path / name, *GLOBAL, *more, dropout=0.0)]

    measured = ("train_loss", "dev_loss", "dev_recall")
    assert main(options("one")) == 0
    assert len(logged(tmp_path / "one", "train_loss")) == 2 * 4
    killed = ["--last.every_n_train_steps=3", callback("train_helpers.KillAfter", batches=7)]
    assert any(together(2, lambda: main(options("two", *killed))))
    same(tmp_path / "one", tmp_path / "two", *measured)
    assert together(3, lambda: main(options("two", "--resume=true"))) == [0, 0, 0]
    assert sorted(logged(tmp_path / "two", "train_loss", 1)) == [6, 7]
    same(tmp_path / "one", tmp_path / "two", *measured, version=1)


def test_the_passages_of_all_processes_are_negatives_of_a_bi_encoder(root: Path, tmp_path: Path) -> None:
    still_bert(tmp_path / "bert")
    (tmp_path / "data").symlink_to(root / "data")

    def options(name: str) -> list[str]:
        given = ["--fit.batch_size=8", "--fit.hard_negatives=1", "--fit.epochs=2", "--fit.learning_rate=1e-3"]
        return biencoder_helpers.options(tmp_path, tmp_path / name, *given)

    def losses(name: str) -> dict[int, float]:
        return biencoder_helpers.logged(tmp_path / name, "train_loss")

    assert main(options("one")) == 0
    assert len(losses("one")) == 2 * 4
    assert not any(together(3, lambda: main(options("three"))))
    assert losses("three") == pytest.approx(losses("one"), abs=2e-4)
    one, three = (biencoder_helpers.logged(tmp_path / name, "dev_recall") for name in ("one", "three"))
    assert one == three


def _measure(folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    numbers = [torch.tensor([1.0, 2.0, 6.0]), torch.tensor([11.0])][rank].requires_grad_()
    mean = mean_over_processes(numbers.mean(), len(numbers))
    mean.backward()
    rows, first = gathered(numbers.detach()[:, None].requires_grad_())
    assert (rows.flatten().tolist(), first) == ([1, 2, 6, 11], [0, 3][rank])
    assert float(averaged(mean)) == 5
    assert summed(rank + 1, rows.device) == 3
    assert numbers.grad is not None
    assert numbers.grad.tolist() == [0.5] * len(numbers)  # twice 1/4: DDP halves it
    assert by_first(lambda: f"{rank}") == "0"
    with pytest.raises(ConfigError if rank else ValueError, match="no such"):
        by_first(lambda: int("no such"))


def test_means_over_processes(tmp_path: Path) -> None:
    assert together(2, lambda: _measure(tmp_path)) == [0, 0]


def test_torchrun_starts_two_processes(root: Path, tmp_path: Path) -> None:
    """As the guide says; the number of devices is that of torchrun."""
    given = arguments("retrieve", root / "data", tmp_path / "out", *GLOBAL, "--trainer.max_steps=2")
    place = Path(__file__).parents[2]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*torchrun, "train.py", *given],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=place, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in done.stderr
    assert len(logged(tmp_path / "out", "train_loss")) == 2
