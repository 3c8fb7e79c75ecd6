"""The same seed and data give the same weights, whatever ran before in the process.

Of other trainings `tests/faults/test_determinism.py` and the commands of rerankers show it.
"""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from train_helpers import arguments, chain_options

from grls.cli import main

SHORT = ("--trainer.max_steps=3", "--trainer.limit_val_batches=0", "--data.workers=0")


@pytest.mark.parametrize("name", ["doc2query", "chains"])
def test_the_weights_repeat(name: str, root: Path, tmp_path: Path) -> None:
    files = []
    for turn in ("first", "second"):
        torch.manual_seed(len(turn))
        np.random.seed(len(turn))
        random.seed(turn)
        if name == "chains":
            lora = ["--model.lora_rank=2", "--model.lora_dropout=0.2"]
            line = [*chain_options(root, tmp_path / turn, *SHORT), *lora]
        else:
            line = ["train", *arguments(name, root / "data", tmp_path / turn, *SHORT, "--model.loss=full")]
        assert main(line) == 0
        files.append((tmp_path / turn / "model" / "model.safetensors").read_bytes())
    assert files[0] == files[1]
