"""Trains a stage of LightningCLI from Python, as ``grls train STAGE`` does from a shell.

The options are those of the command, by their names on the command line. Every error is one of grls.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.io.ending import quiet, require
from grls.io.recipes import config_file
from grls.train.catalogue import STAGES
from grls.train.core.clock import Meter, TrainingClock
from grls.train.result import TrainingResult


def run_stage(
    name: str,
    options: Mapping[str, Any],
    recipes: Sequence[str] = (),
    *,
    max_seconds: float | None = None,
    meter: Meter | None = None,
) -> TrainingResult:
    """Train a stage: ``memorise``, ``retrieve``, ``chains``, ``riches`` or ``doc2query``.

    Args:
        name: The stage.
        options: Options of ``grls train NAME`` -> value, such as ``{"output": "runs/mine", "data.data":
            "data/mine", "model.generator.name_or_path": "t5-small", "data.spans": {"words": 8}}``. None is
            null. ``output`` must be there.
        recipes: Names of recipes (``chains``, ``default/chains``), or YAML files; later ones override earlier
            ones, and ``options`` override all.
        max_seconds: Longest time of the call, with reading of data and measurements on dev; None: no limit.
            When it is over, dev is measured once more and the best weights are kept.
        meter: Called with every step (:class:`~grls.train.core.clock.TrainingStep`), in place of bars and
            lines.

    Raises:
        ConfigError: The stage, a recipe or an option is unknown or has a value that cannot work, or the
            training has diverged.
        DataError: The data set is malformed.
        MismatchError: The run to resume had other data.
        WriteError: The output cannot be written.
        KeyboardInterrupt: Ctrl-C ended the run.
        SystemExit: SIGTERM ended the run, and the process is to end.
    """
    if name not in STAGES:
        near = get_close_matches(name, STAGES, 1) or STAGES
        raise ConfigError(f"there is no training stage {name!r}; take {' or '.join(near)}.")
    if "output" not in options:
        raise ConfigError(f"the training stage {name} needs the option output, the folder that it writes.")
    require("train", f"the training stage {name}")
    clock = TrainingClock(name, max_seconds, meter)
    arguments = [*STAGES[name].arguments, *(f"--config={config_file(recipe)}" for recipe in recipes)]
    arguments += ["--trainer.enable_model_summary=false"]
    if meter is not None:
        arguments += ["--trainer.enable_progress_bar=false"]
    for option, value in options.items():
        text = str(value) if isinstance(value, str | Path) else json.dumps(value, default=str)
        arguments.append(f"--{option}={text}")

    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from grls.train.cli import fit_stage

    quiet()
    # Ctrl-C raises KeyboardInterrupt, of which Lightning makes an exit that ignores Ctrl-C from then on.
    # SIGTERM ends with the status of a shell.
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    try:
        ended = fit_stage(arguments, f"grls train {name}", clock)
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        if isinstance(end, SIGTERMException):
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    output = Path(str(options["output"]))
    trainer: Any = ended.trainer
    best = next(callback for callback in trainer.checkpoint_callbacks if callback.monitor)
    return TrainingResult(
        output / "model",
        Path(trainer.log_dir or output),
        best.monitor,
        None if best.best_model_score is None else float(best.best_model_score),
        trainer.global_step,
        len(trainer.datamodule.train_examples),
        clock.seconds,
        clock.time_is_up,
    )
