"""The trainings of a run. A training that was cut off goes on from its last checkpoint, or begins anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.errors import ConfigError, MismatchError
from grls.fitting.plain import opened_name
from grls.fitting.plan import Stage
from grls.fitting.work import FitWork, section, stage_tree
from grls.io.counts import counted
from grls.io.progress import duration
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.core.clock import Meter, TrainingStep
from grls.train.result import TrainingResult

BIENCODER, GENERATOR = "biencoder", "generator"

Training = Callable[[bool, Meter], TrainingResult]
"""Whether to go on from a checkpoint, and the meter -> the training."""


def train_encoder(work: FitWork, stage: Stage, seconds: float | None) -> dict[str, Any]:
    """Train the bi-encoder.

    Args:
        work: The run.
        stage: The options.
        seconds: The longest time of it; None: no limit.
    """
    from grls.train.biencoder.run import run_biencoder

    tree = stage_tree(stage)
    fit = section(BiEncoderOptions, tree, "fit")
    usual = {name: tree[name] for name in ("source", "kind", "max_tokens", "train_split") if name in tree}
    output = work.stage(BIENCODER)

    def run(resume: bool, meter: Meter) -> TrainingResult:
        return run_biencoder(
            data=work.data, output=str(output), dev_split=tree.get("dev_split", work.tune), fit=fit,
            resume=resume, max_seconds=seconds, meter=meter, **usual,
        )  # fmt: skip

    most = fit.dev_passages
    return _trained(work, output, run) | {"on": _measured_on(work, fit.dev_size, _by_hop(fit), most)}


def _by_hop(fit: BiEncoderOptions) -> bool:
    return fit.by_hop and bool(fit.multistep)


def train_writer(work: FitWork, stage: Stage, seconds: float | None) -> dict[str, Any]:
    """Train the generator; see :func:`train_encoder`."""
    from grls.train.run import run_stage

    output = work.stage(GENERATOR)
    splits = {"data.train_split": "train", "data.dev_split": work.tune}
    options = {**splits, **work.placed(stage.options), "data.data": work.data, "output": str(output)}
    options["model.generator"] = _opened(options["model.generator"], work)

    def run(resume: bool, meter: Meter) -> TrainingResult:
        given = {**options, "resume": resume}
        return run_stage("chains", given, stage.recipes, max_seconds=seconds, meter=meter)

    by_hop = stage_tree(stage)["data"]["init_args"].get("by_hop") and stage.options["data.multistep"]
    on = _measured_on(work, stage.options["data.dev_size"], bool(by_hop))
    return _trained(work, output, run) | {"on": on}


def _opened(generator: dict[str, Any], work: FitWork) -> dict[str, Any]:
    """The generator, opened from its plain weights if the run has them."""
    known = generator["init_args"]
    source = opened_name(known["name_or_path"], work.output)
    return {**generator, "init_args": {**known, "name_or_path": source}}


def _measured_on(work: FitWork, queries: int, by_hop: bool, passages: int | None = None) -> str:
    """What the recall of a training is measured on, where the table at the end has another one.

    Args:
        work: The run.
        queries: The most dev queries.
        by_hop: Whether every hop counts, with the gold passages before it.
        passages: The passages that are searched; None: all of them.
    """
    count = min(queries, len(read_split(work.data, work.tune)[0]))
    every = len(Corpus.read(work.data))
    on = f"{count:,} dev quer{'y' if count == 1 else 'ies'}"
    on += ", each hop with the gold passages before it" if by_hop else ""
    return on + (f", in {passages:,} of {every:,} passages" if passages and passages < every else "")


def begun_training(work: FitWork, name: str) -> Path:
    """The folder of the checkpoints of a training; it is there once the first one is."""
    return work.stage(name) / "checkpoints"


def _trained(work: FitWork, output: Path, run: Training) -> dict[str, Any]:
    """Go on with a training, or begin it anew if there is nothing to go on with."""
    steps: list[int] = []

    def meter(step: TrainingStep) -> None:
        steps.append(step.step)
        of = "" if step.of is None else f" of {step.of:,}"
        work.progress.at(step.step / step.of if step.of else None, f"train step {step.step:,}{of}")

    if (output / "checkpoints").is_dir():
        try:
            return _result(work, run(True, meter))
        except (ConfigError, MismatchError):
            if steps:  # the training itself has failed
                raise
        shutil.rmtree(output)
    return _result(work, run(False, meter))


def _result(work: FitWork, trained: TrainingResult) -> dict[str, Any]:
    return {
        "model": trained.model.relative_to(work.output).as_posix(),
        "steps": trained.steps,
        "examples": trained.examples,
        "measure": f"recall@{work.options.k}",
        "best": None if trained.best is None else round(trained.best, 4),
        "time_is_up": trained.time_is_up,
    }


def training_line(result: dict[str, Any], seconds: float) -> str:
    """What a training came to, for people."""
    measured = (
        ""
        if result["best"] is None
        else f", {result['measure']} {100 * result['best']:.1f} on {result['on']}"
    )
    ended = ", ended by the time that there is" if result["time_is_up"] else ""
    return f"{counted(result['steps'], 'step')}{measured}{ended}, {duration(seconds)}"
