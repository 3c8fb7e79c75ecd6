"""A tiny bi-encoder that is trained by the command, for tests of its training."""

import json
from pathlib import Path

import torch
from small_data import tiny_bert, write_small

from grls.cli import main


def made_place(folder: Path) -> Path:
    """A small data set and a random BERT."""
    write_small(folder / "data")
    torch.manual_seed(0)  # its weights are random: the losses below are those of this seed
    tiny_bert(folder / "bert")
    return folder


def options(place: Path, output: Path, *more: str) -> list[str]:
    """30 pairs, 4 a batch: 8 steps an epoch."""
    return [
        "train", "biencoder", f"--data={place / 'data'}", f"--source={place / 'bert'}", f"--output={output}",
        "--fit.epochs=3", "--fit.batch_size=4", "--fit.learning_rate=1e-2", "--fit.log_every=1",
        "--fit.k=1", "--fit.device=cpu", "--fit.similarity=dot",
        *more,
    ]  # fmt: skip


def train(place: Path, output: Path, *more: str) -> Path:
    assert main(options(place, output, *more)) == 0
    return output


def logged(output: Path, name: str) -> dict[int, float]:
    """Step -> value."""
    history = json.loads((output / "logs.json").read_text())["history"]
    return {entry["step"]: entry[name] for entry in history if name in entry}
