"""A tiny bi-encoder that is trained by the command, for tests of its training."""

import csv
from pathlib import Path
from typing import Any

import torch
import yaml
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
        "--fit.epochs=3", "--fit.batch_size=4", "--fit.learning_rate=1e-2",
        "--fit.k=1", "--fit.device=cpu", "--fit.similarity=dot",
        *more,
    ]  # fmt: skip


def train(place: Path, output: Path, *more: str) -> Path:
    assert main(options(place, output, *more)) == 0
    return output


def settings(output: Path) -> dict[str, Any]:
    """The settings of the last run there."""
    file = max((output / "logs").glob("version_*/config.yaml"), key=lambda file: file.stat().st_mtime_ns)
    held: dict[str, Any] = yaml.safe_load(file.read_text())
    return held


def logged(output: Path, name: str) -> dict[int, float]:
    """Optimizer steps -> ``train_loss`` or ``dev_recall``, of a run and of those that resumed it."""
    values: dict[int, float] = {}
    for file in sorted((output / "logs").glob("version_*/metrics.csv")):
        with file.open() as stream:
            values |= {
                int(row["step"]) + 1: float(row[name]) for row in csv.DictReader(stream) if row.get(name)
            }
    return values
