"""The same seed and data give the same weights byte for byte, whatever ran before in the process.

Of rerankers the tests of their commands show it.
"""

import random
from pathlib import Path

import biencoder_helpers
import numpy as np
import pytest
import torch
from train_helpers import arguments, chain_options

from grls.cli import main

SHORT = ("--trainer.max_steps=3", "--trainer.more={limit_val_batches: 0}", "--data.workers=0")


@pytest.mark.parametrize("name", ["chains", "doc2query", "memorise", "retrieve", "biencoder"])
def test_the_weights_repeat(name: str, root: Path, place: Path, tmp_path: Path) -> None:
    files = []
    for turn in ("first", "second"):
        torch.manual_seed(len(turn))
        np.random.seed(len(turn))
        random.seed(turn)
        if name == "chains":
            lora = ["--model.lora_rank=2"]
            line = [*chain_options(root, tmp_path / turn, *SHORT), *lora]
        elif name == "biencoder":
            line = biencoder_helpers.options(place, tmp_path / turn, "--fit.epochs=1")
        else:
            more = ["--model.loss=full"] if name == "doc2query" else []
            line = ["train", *arguments(name, root / "data", tmp_path / turn, *SHORT, *more)]
        assert main(line) == 0
        files.append((tmp_path / turn / "model" / "model.safetensors").read_bytes())
    assert files[0] == files[1]
