"""Trains a stage: `grls train STAGE`, ``Generator.fit`` and `grls fit` call :func:`train`.

Under ``output``: ``checkpoints/``, ``logs/`` (CSV and TensorBoard, and ``config.yaml`` with all options) and
``model/`` (the best model, for the next stage). One checkpoint has the weights with the best dev score, the
other is for resuming, and is written every epoch. One callback for both would judge new weights by an old
score.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pydoc import locate
from typing import Any

import lightning as L
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException

from grls.errors import ConfigError, GrlsError, Option, out_of_memory
from grls.io.ending import quiet
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    RunState,
    check_checkpoint,
    last_checkpoint,
    refuse_unfinished,
)
from grls.train.core.clock import TrainingClock
from grls.train.core.datamodule import FitData
from grls.train.core.module import GeneratorModule
from grls.train.core.processes import leaving_no_group, only_training
from grls.train.core.trainer import SHARDED, GiveBackFreed, RefuseNaN, TimeLimit, Trainer, TrainingLines
from grls.train.doc2query.data import QueryData
from grls.train.generator.callbacks import ConstrainedRecall, SaveModel
from grls.train.generator.data import MemoriseData, RetrieveData
from grls.train.generator.module import Retrieve
from grls.train.options import RecallStage, RichesStage, TrainerOptions, TrainingStage, as_record
from grls.train.result import TrainingResult
from grls.train.riches.callbacks import QuoteRecall
from grls.train.riches.data import InterlacedData

_UNFIT = {
    "BackboneFinetuning": f"needs a module with a `backbone`: set {Option('model.freeze_encoder', True)}.",
    "BatchSizeFinder": f"tries several sizes of batches, but a run has one: set {Option('data.batch_size')}.",
    "StochasticWeightAveraging": "changes the weights after the last measurement on dev, which chooses the "
    f"model: take EMAWeightAveraging, or set {Option('checkpoint.monitor', None)}.",
}
"""Callbacks of Lightning that do something else than they are meant for here, and why."""


PARTS: dict[str, tuple[Callable[[Any], GeneratorModule], Callable[[Any], FitData]]] = {
    "memorise": (partial(GeneratorModule, stage="memorise"), MemoriseData),
    "retrieve": (Retrieve, RetrieveData),
    "chains": (partial(Retrieve, together=True), RetrieveData),
    "riches": (partial(GeneratorModule, stage="interlace"), InterlacedData),
    "doc2query": (partial(GeneratorModule, stage="writequeries"), QueryData),
}
"""Stage -> its module and its data."""


def measures(options: TrainingStage) -> list[L.Callback]:
    """The callbacks of a stage that measure dev."""
    if isinstance(options, RichesStage):
        return [QuoteRecall(options.quotes)]
    return [ConstrainedRecall(options.recall)] if isinstance(options, RecallStage) else []


@leaving_no_group()
def train(options: TrainingStage, clock: TrainingClock | None = None) -> TrainingResult:
    """Train a stage. ``clock`` limits the time; where a meter listens to it, nothing is printed."""
    quiet()
    clock = clock or TrainingClock(options.name)
    output, record = Path(options.output), as_record(options)
    state = RunState.of_options(record)
    refuse_unwritable(output / "checkpoints", folder=True)
    refuse_foreign(output / "model", "config.json")
    with only_training(options.output):
        resumed = _checkpoint(options, state)
        L.seed_everything(options.seed_everything, workers=True)
        make_module, make_data = PARTS[options.name]
        module, data = make_module(options.model), make_data(options.data)
        module.state = state
        with _interrupted(clock), _lightning(options.trainer):
            folder: dict[str, Any] = {"dirpath": output / "checkpoints", "enable_version_counter": False}
            best = BestCheckpoint(**folder, filename="best", **vars(options.checkpoint))
            last = ModelCheckpoint(
                **folder, filename="last", save_on_train_epoch_end=True, **vars(options.last)
            )
            # Dev is measured before others end the measurement: weight averaging puts its weights back.
            callbacks = [
                *measures(options), *_callbacks(options), SaveModel(str(output / "model")), GiveBackFreed(),
                RefuseNaN(), TimeLimit(clock), *([] if clock.meter else [TrainingLines()]),
                WriteOptions(record), best, last,
            ]  # fmt: skip
            trainer = _trainer(options, callbacks, clock)
            trainer.fit(module, datamodule=data, ckpt_path=resumed)
    score = best.best_model_score
    return TrainingResult(
        output / "model",
        Path(trainer.log_dir or output),
        str(best.monitor),
        None if score is None else float(score),
        trainer.global_step,
        len(data.train_examples),
        clock.seconds,
        clock.time_is_up,
    )


def _checkpoint(options: TrainingStage, state: RunState) -> str | None:
    """The checkpoint to resume from, of a run with the same options; None: a new run begins."""
    if options.resume and options.ckpt_path is not None:
        raise ConfigError(
            f"{Option('resume')} takes the last checkpoint in {Option('output')}, and "
            f"{Option('ckpt_path')} names a checkpoint: give only one of the two."
        )
    path = str(last_checkpoint(options.output)) if options.resume else options.ckpt_path
    if path is None:
        refuse_unfinished(options.output)
        return None
    before = check_checkpoint(path, options.trainer.strategy in SHARDED)
    state.refuse_other(before, options.output if options.resume else path)
    return path


def _callbacks(options: TrainingStage) -> list[L.Callback]:
    made: list[L.Callback] = []
    for name, arguments in options.trainer.callbacks.items():
        kind = locate(name if "." in name else f"lightning.pytorch.callbacks.{name}")
        short = name.rpartition(".")[2]
        if not (isinstance(kind, type) and issubclass(kind, L.Callback)):
            raise ConfigError(f"{Option('trainer.callbacks')}: {name} is no callback of Lightning.")
        averaged = short == "StochasticWeightAveraging" and options.checkpoint.monitor is None
        if short in _UNFIT and not averaged:
            raise ConfigError(f"{Option('trainer.callbacks')} {short} {_UNFIT[short]}")
        try:
            made.append(kind(**arguments))
        except (MisconfigurationException, TypeError, ValueError) as error:
            reason = str(error).removesuffix(".")
            raise ConfigError(f"{Option('trainer.callbacks')} {name}: {reason}.") from error
    return made


def _trainer(options: TrainingStage, callbacks: list[L.Callback], clock: TrainingClock) -> Trainer:
    logs = CSVLogger(options.output, name="logs")
    given: dict[str, Any] = {
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "logger": [logs, TensorBoardLogger(options.output, name="logs", version=logs.version)],
        "plugins": [AtomicCheckpointIO()],
        "default_root_dir": options.output,
        **vars(options.trainer),
        "callbacks": callbacks,
    }
    given |= given.pop("more")
    if clock.meter is not None:
        given["enable_progress_bar"] = False
    return Trainer(**given)


@contextmanager
def _lightning(options: TrainerOptions) -> Iterator[None]:
    """A context in which an error of Lightning names the options it is about, or all that were changed."""
    try:
        yield
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))
        ours = isinstance(error, GrlsError) or is_write_failure(error) or out_of_memory(error)
        if ours or not where.startswith("lightning."):
            raise
        usual, reason = vars(TrainerOptions()), " ".join(str(error).split()).removesuffix(".")
        changed = {name: value for name, value in vars(options).items() if value != usual[name]}
        words = {"more": [*options.more], "callbacks": [n.rpartition(".")[2] for n in options.callbacks]}
        meant = [name for name in changed if any(word in reason for word in words.get(name, [name]))]
        given = [f"{Option(f'trainer.{name}', changed[name])}" for name in meant or changed]
        told = " ".join(given) or "these options"
        raise ConfigError(f"Lightning cannot train with {told}: {reason}.") from error


@contextmanager
def _interrupted(clock: TrainingClock) -> Iterator[None]:
    """A context in which Ctrl-C raises KeyboardInterrupt, and SIGTERM ends with the status of a shell.

    Lightning makes an exit of Ctrl-C, which it ignores from then on.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        if not isinstance(end, SIGTERMException):
            raise
        if clock.meter is None:
            remedy = " ".join(getattr(end, "__notes__", ["start it again."]))  # SaveModel adds the note
            print(f"error: the run was ended by SIGTERM before it was done; {remedy}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


class WriteOptions(L.Callback):
    """Writes all options of a run into ``config.yaml`` beside its logs, which ``--config`` reads."""

    def __init__(self, record: dict[str, Any]):
        self.record = record

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        folder = trainer.log_dir  # on all processes: they agree on it
        if trainer.is_global_zero and folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(self.record, sort_keys=False, allow_unicode=True)
            (Path(folder) / "config.yaml").write_text(text, encoding="utf-8")
