"""Running `grls train` on the small data set, and reading what it logs."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from llama_small import write_llama
from small_data import tiny_bert, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.models.load.generators import CausalLM, GeneratorSpec
from grls.train.core.examples import Example
from grls.train.generator.data import RetrieveData
from grls.train.generator.module import Retrieve
from grls.train.generator.targets import Teacher
from grls.train.options import ChainModelOptions, LearnBeside, RetrieveDataOptions

TRAIN = Path(__file__).parents[2] / "train.py"
_HELPERS = os.pathsep.join(map(str, Path(__file__).parents[:2]))
"""Where a process of its own finds what these tests import: here, and a folder up."""

SHORT = [
    "--data.batch_size=4", "--trainer.max_epochs=3", "--trainer.accelerator=cpu",
    "--trainer.log_every_n_steps=1",
]  # fmt: skip


def arguments(stage: str, data: Path, output: Path, *more: str, dropout: float = 0.1) -> list[str]:
    """What follows `grls train` for a tiny run: 30 retrieve examples or 10 passages, 4 a batch."""
    return [
        stage,
        f"--output={output}",
        *scratch_options(data, dropout),
        "--model.optimizer=adamw",
        "--model.learning_rate=3e-3",
        "--model.loss=allowed",
        f"--data.data={data}",
        *SHORT,
        *more,
    ]


def scratch_options(data: Path, dropout: float = 0.0, **more: object) -> list[str]:
    """Options that make a tiny T5 from scratch."""
    size = {"data": data, "vocabulary": 120, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1,
            "num_decoder_layers": 1, "num_heads": 4, "dropout": dropout, **more}  # fmt: skip
    kind = "--model.generator=ScratchT5"
    return [kind, *(f"--model.generator.{name}={value}" for name, value in size.items())]


def write_chain_parts(folder: Path) -> Path:
    """What training on chains starts from: ``data``, a causal model ``llama``, a dense index ``dense``."""
    write_small(folder / "data")
    write_llama(folder / "llama", folder / "data")
    tiny_bert(folder / "bert")
    command = ["index", "--kind=dense", f"{folder / 'bert'}", f"--corpus={folder / 'data'}"]
    assert main([*command, f"--output={folder / 'dense'}"]) == 0
    return folder


def chain_options(root: Path, output: Path, *more: str, t5: bool = False) -> list[str]:
    """The options of a tiny run on what :func:`write_chain_parts` wrote, or of a T5 from scratch."""
    causal = [f"--model.generator.name_or_path={root / 'llama'}"]
    return [
        "train", "chains", "--config=configs/chains.yaml",
        f"--output={output}", f"--data.data={root / 'data'}",
        *(scratch_options(root / "data") if t5 else causal), "--model.learning_rate=1e-2",
        "--model.freeze_embeddings=false", *SHORT, "--trainer.max_epochs=2", *more,
    ]  # fmt: skip


def chain_module(generator: GeneratorSpec, **options: Any) -> Retrieve:
    """The module of the stage chains."""
    return Retrieve(ChainModelOptions(generator=generator, **options), together=True)


def opened_chains(root: Path, prior: LearnBeside | None = None, **options: Any) -> tuple[RetrieveData, Any]:
    """Chains of ``data`` for the causal model ``llama``, as a trainer sets both up."""
    data = RetrieveData(RetrieveDataOptions(data=str(root / "data"), prior=prior, **options))
    module = chain_module(CausalLM(str(root / "llama")))
    module.model.eval()
    data.read(module)
    return data, module


class AsPairs:
    """Hops alone, drawn as model input and the tokens to write."""

    def __init__(self, examples: Any, corpus: Corpus):
        self.examples, self.corpus = examples, corpus

    def __len__(self) -> int:
        return len(self.examples)

    def draw(self, number: int, epoch: int) -> Example:
        (hop,) = self.examples.draw(number, epoch)
        codec, (name,) = self.examples.codec, hop.gold
        row = codec.done_sequence if name == len(self.corpus) else codec.passages([self.corpus[name]])[0]
        return Example(hop.source, row[hop.front :].tolist())


def train(*given: Any, **named: Any) -> Path:
    """`grls train` in this process; returns the output folder."""
    options = arguments(*given, **named)
    assert main(["train", *options]) == 0
    return Path(given[2])


def callback(name: str, **arguments: Any) -> str:
    """The option of `grls train` for a callback."""
    return f"--trainer.callbacks={json.dumps({name: arguments})}"


def start(options: list[str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """`grls train` in a process of its own."""
    return subprocess.run(
        [sys.executable, str(TRAIN), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _HELPERS},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def logged(output: Path, name: str, version: int = 0) -> dict[int, float]:
    """Step -> value, from the CSV log."""
    with (output / "logs" / f"version_{version}" / "metrics.csv").open() as stream:
        return {int(row["step"]): float(row[name]) for row in csv.DictReader(stream) if row.get(name)}


def same(alone: Path, output: Path, *names: str, version: int = 0, within: float = 2e-4) -> None:
    """What is logged of a run on several processes is what one process logs at these steps."""
    for name in names:
        expected, values = logged(alone, name), logged(output, name, version)
        assert values
        assert values == pytest.approx({step: expected[step] for step in values}, abs=within), name


def flip(file: Path) -> None:
    """One bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def always(weights: dict[int, float]) -> Teacher:
    """A teacher that always believes in the same passages."""
    return lambda hops: [weights for _ in hops]


class KillAfter(L.Callback):
    """Ends the process as a power cut would.

    Args:
        batches: After so many batches of the whole run.
        politely: By SIGTERM, as a scheduler does first.
    """

    def __init__(self, batches: int, politely: bool = False):
        self.batches = batches
        self.signal = signal.SIGTERM if politely else signal.SIGKILL

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx + 1 == self.batches:
            os.kill(os.getpid(), self.signal)


class Spoil(L.Callback):
    """Makes something of one step not a number, as an overflow does.

    Args:
        step: Which step, from 1.
        what: The ``loss``, or the ``gradient`` alone.
        rank: In which process.
    """

    def __init__(self, step: int, what: str = "loss", rank: int = 0):
        self.step, self.what, self.rank = step, what, rank

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step + 1 != self.step or trainer.global_rank != self.rank:
            return
        weight = next(weight for weight in pl_module.parameters() if weight.requires_grad)
        if self.what == "gradient":
            weight.register_hook(lambda gradient: gradient * float("nan"))
        else:
            weight.data.fill_(float("nan"))


class SpoilAtEnd(L.Callback):
    """Makes weights not a number after the last look at them."""

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        next(pl_module.parameters()).data.fill_(float("nan"))
