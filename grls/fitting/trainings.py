"""The trainings of a run. A training that was cut off goes on from its last checkpoint, or begins anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, MismatchError
from grls.fitting.plan import Stage
from grls.fitting.work import FitWork, section, stage_tree
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

    return _trained(work, output, run)


def train_writer(work: FitWork, stage: Stage, seconds: float | None) -> dict[str, Any]:
    """Train the generator; see :func:`train_encoder`."""
    from grls.train.run import run_stage

    output = work.stage(GENERATOR)
    splits = {"data.train_split": "train", "data.dev_split": work.tune}
    options = {**splits, **work.placed(stage.options), "data.data": work.data, "output": str(output)}

    def run(resume: bool, meter: Meter) -> TrainingResult:
        given = {**options, "resume": resume}
        return run_stage("chains", given, stage.recipes, max_seconds=seconds, meter=meter)

    return _trained(work, output, run)


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
        "measure": trained.monitor,
        "best": None if trained.best is None else round(trained.best, 4),
        "time_is_up": trained.time_is_up,
    }


def training_line(result: dict[str, Any], seconds: float) -> str:
    """What a training came to, for people."""
    measured = "" if result["best"] is None else f", {result['measure']} {100 * result['best']:.1f}"
    ended = ", ended by the time that there is" if result["time_is_up"] else ""
    return f"{result['steps']:,} steps{measured}{ended}, {duration(seconds)}"
