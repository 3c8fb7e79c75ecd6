"""The best checkpoint of a run that was moved or copied."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from grls.train.core.checkpoints import BestCheckpoint


def best_in(folder: Path) -> BestCheckpoint:
    return BestCheckpoint(dirpath=folder, filename="best", monitor="dev_recall", mode="max")


def test_a_moved_run_knows_its_best_score(tmp_path: Path) -> None:
    """Without it a worse later epoch takes the place of the best."""
    before, score = best_in(tmp_path / "old"), torch.tensor(0.8)
    file = str(tmp_path / "old" / "best.ckpt")
    before.best_model_path = before.kth_best_model_path = file
    before.best_model_score = before.kth_value = score
    before.best_k_models = {file: score}
    moved = best_in(tmp_path / "new")
    moved.load_state_dict(before.state_dict())
    assert moved.best_model_path == str(tmp_path / "new" / "best.ckpt")
    assert moved.best_model_score == score
    trainer: Any = SimpleNamespace(
        callback_metrics={}, strategy=SimpleNamespace(reduce_boolean_decision=lambda one: one)
    )
    assert not moved.check_monitor_top_k(trainer, torch.tensor(0.7))
    assert moved.check_monitor_top_k(trainer, torch.tensor(0.9))
