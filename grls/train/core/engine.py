"""Runs a training by Lightning, of a generator, a bi-encoder or a reranker.

Under ``output``: ``checkpoints/``, ``logs/`` (CSV and TensorBoard, and ``config.yaml`` with all options) and
``model/`` (the best model, for the next stage). One checkpoint has the weights with the best dev score, the
other is for resuming. One callback for both would judge new weights by an old score.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import lightning as L
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException

from grls.errors import ConfigError, Option, WriteError, worded
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.models.option_names import TrainerPrecision
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    check_checkpoint,
    kept_checkpoint,
    last_checkpoint,
    refuse_other_settings,
    refuse_unfinished,
    run_settings,
)
from grls.train.core.clock import TrainingClock, TrainingResult
from grls.train.core.datamodule import FitData
from grls.train.core.module import TrainingModule
from grls.train.core.processes import by_first, is_first, launched, leaving_no_group
from grls.train.core.trainer import (
    SHARDED,
    GiveBackFreed,
    RefuseNaN,
    TimeLimit,
    Trainer,
    TrainingLines,
    in_terminal,
    is_metered,
    load_weights,
    spoiled,
)
from grls.train.options import EncoderOptions

log = logging.getLogger(__name__)


def begin(
    record: Mapping[str, Any],
    output: str | Path,
    resume: bool,
    strategy: str,
    marker: str = "config.json",
) -> str | None:
    """The checkpoint to resume from, of a run with the same options; None: a new run begins.

    Args:
        record: The options of the run.
        strategy: That of several processes.
        marker: A file that every model of this kind has.
    """
    refuse_unwritable(Path(output) / "checkpoints", folder=True)
    refuse_foreign(Path(output) / "model", marker)
    if not resume:
        refuse_unfinished(str(output), model=marker)
        return None
    path = str(last_checkpoint(output))
    option = "fit.strategy" if "fit" in record else "trainer.strategy"
    refuse_other_settings(check_checkpoint(path, strategy in SHARDED, option), run_settings(record), output)
    return path


@leaving_no_group()
def fit_model(
    module: TrainingModule,
    data: FitData,
    output: str | Path,
    record: Mapping[str, Any],
    resumed: str | None,
    clock: TrainingClock,
    *,
    trainer: Mapping[str, Any],
    best: Mapping[str, Any],
    last: Mapping[str, Any] = {},
    callbacks: Sequence[L.Callback] = (),
    steps: int | None = None,
) -> TrainingResult:
    """Train, and write the model of the best checkpoint (without one: of the last step) to ``output/model``.

    The losses are a function of the seed; a resumed run has the losses of an uninterrupted one.

    Args:
        record: The options of the run, which checkpoints and logs hold.
        resumed: The checkpoint to resume from; see :func:`begin`.
        trainer: Options of Lightning's trainer.
        best: Options of the checkpoint of the best weights; ``monitor`` null: there is none.
        last: Options of the checkpoint to resume from.
        callbacks: Further callbacks. Dev is measured before others end the measurement, for weight
            averaging puts its weights back then.
        steps: All optimizer steps; None: as many as the trainer makes.
    """
    folder = Path(output)
    place: dict[str, Any] = {"dirpath": folder / "checkpoints", "enable_version_counter": False}
    best_checkpoint = BestCheckpoint(**place, filename="best", **best)
    module.settings = run_settings(record)
    logs = CSVLogger(folder, name="logs")
    loggers = [logs, TensorBoardLogger(folder, name="logs", version=logs.version)]
    options: dict[str, Any] = {
        "use_distributed_sampler": False, "num_sanity_val_steps": 0, "enable_model_summary": False,
        "logger": loggers, "plugins": [AtomicCheckpointIO()], "default_root_dir": folder,
        "enable_progress_bar": clock.meter is None and in_terminal(),
        **trainer,
    }  # fmt: skip
    run = Trainer(
        **options,
        callbacks=[
            *callbacks, SaveModel(folder / "model"), GiveBackFreed(), RefuseNaN(), TimeLimit(clock, steps),
            *([] if clock.meter else [TrainingLines(steps)]), WriteOptions(record), best_checkpoint,
            ModelCheckpoint(**place, filename="last", save_on_train_epoch_end=True, **last),
        ],
    )  # fmt: skip
    with _interrupted(clock):
        try:
            run.fit(module, datamodule=data, ckpt_path=resumed)
        except OSError as error:  # of the log: checkpoints have an error of their own
            if not is_write_failure(error):
                raise
            raise WriteError(f"cannot write under {folder} ({error}). Free disk space.") from error
        finally:
            if not run.global_step and is_first():  # refused, or ended before its first step
                rmtree(logs.log_dir, ignore_errors=True)
                with suppress(OSError):  # there are logs of other runs
                    Path(logs.root_dir).rmdir()
    score = best_checkpoint.best_model_score
    return TrainingResult(
        folder / "model",
        Path(run.log_dir or folder),
        best_checkpoint.monitor,
        None if score is None else float(score),
        run.global_step,
        len(data.train_examples),
        clock.seconds,
        clock.time_is_up,
    )


_PRECISIONS: dict[str, TrainerPrecision] = {"float32": "32-true", "bfloat16": "bf16-mixed", "auto": "auto"}


def trainer_options(options: EncoderOptions, unused: bool = True) -> dict[str, Any]:
    """Options of Lightning's trainer, of those of an encoder.

    ``unused``: some weights have no gradient, which ``ddp`` must know.
    """
    strategy: str = options.strategy
    if strategy not in SHARDED:
        alone = launched() in (None, (1, 1))
        strategy = "auto" if alone else "ddp_find_unused_parameters_true" if unused else "ddp"
    return {
        "devices": 1 if launched() is None else "auto", "strategy": strategy,
        "precision": _PRECISIONS[options.precision],
        "remedy": Option("fit.precision", "float32", "auto"), "max_epochs": options.epochs,
    }  # fmt: skip


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

    def __init__(self, record: Mapping[str, Any]):
        self.record = dict(record)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        folder = trainer.log_dir  # on all processes: they agree on it
        if trainer.is_global_zero and folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(self.record, sort_keys=False, allow_unicode=True)
            (Path(folder) / "config.yaml").write_text(text, encoding="utf-8")


class SaveModel(L.Callback):
    """Writes the model of the best checkpoint at the end.

    Warns where training went on after the last measurement on dev: no best checkpoint has those steps.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._looked = 0

    def state_dict(self) -> dict[str, Any]:
        """The step of the last measurement on dev, for a resumed run."""
        return {"looked": self._looked}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._looked = state_dict["looked"]

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._looked = trainer.global_step

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Load the weights of the best checkpoint, if there is one, and write the model."""
        module: Any = pl_module
        if not trainer.global_step:
            raise ConfigError(
                f"no step was made, so nothing was written to {self.folder}: raise {module.length}."
            )
        checkpoints = (c for c in trainer.checkpoint_callbacks if isinstance(c, BestCheckpoint))
        asked = not trainer.fast_dev_run  # type: ignore[attr-defined]
        best = next((c for c in checkpoints if c.monitor and c.save_top_k and asked), None)
        taken, measured = trainer.global_step, ""
        if best is not None:
            taken, measured = self._best(trainer, module, best)
        model = module.plain_model()

        def write() -> None:
            if (name := spoiled(dict(model.named_parameters()))) is not None:
                raise ConfigError(
                    f"the training has diverged: weights of {name} are not finite, so nothing was written to "
                    f"{self.folder}. Lower {module.remedy}."
                )
            module.save(model, self.folder)
            if not is_metered(trainer):
                print(f"{self.folder}: the model of step {taken:,} of {trainer.global_step:,}{measured}")

        by_first(write)

    def _best(self, trainer: L.Trainer, module: Any, best: BestCheckpoint) -> tuple[int, str]:
        """Load the best weights; returns their step, and what was measured of them, in words."""
        last = trainer.global_step
        path = Path(best.best_model_path)
        often = f"{worded(module.often)} An epoch has {trainer.num_training_batches} batches."
        trouble = f"{best.monitor} was never measured"
        try:
            if best.best_model_path:
                trouble, step = "", load_weights(trainer, module, path)
        except ConfigError as error:
            trouble = error.text.removesuffix(".")
        if trouble:
            if trainer.is_global_zero:
                log.warning("%s, so the model of the last step is written. %s", trouble, often)
            return last, ""
        if last > self._looked and not str(best.monitor).startswith("train") and trainer.is_global_zero:
            log.warning(
                "%s was measured last at step %d of %d, so the model that is written has none of the later "
                "steps. %s The last weights are in %s.",
                best.monitor, self._looked, last, often, path.parent,
            )  # fmt: skip
        return step, f", {best.monitor} {float(best.best_model_score or 0.0):.4f}"

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Add a note on how to resume to the exception of a run that SIGTERM ended."""
        if isinstance(exception, SIGTERMException):
            checkpoint = kept_checkpoint(trainer)
            if checkpoint is not None:
                exception.add_note(f"go on from its last checkpoint with {Option('resume', True)!s}.")
            else:
                exception.add_note("nothing was saved yet, so start it again.")
