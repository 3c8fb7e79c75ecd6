"""``grls train STAGE`` and ``train.py``: a LightningCLI with one output folder for all that a run writes.

    grls train retrieve --config configs/retrieve.yaml --config configs/scratch/retrieve.yaml …

Under ``output``: ``checkpoints/``, ``logs/`` (CSV and TensorBoard, and ``config.yaml`` with all options) and
``model/`` (the best model, for the next stage). The callback ``checkpoint`` keeps the weights with the best
dev score; ``last`` is for resuming (``--resume true``), and is written every epoch, or every
``--last.every_n_train_steps``. One callback for both would judge new weights by an old score.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from traceback import walk_tb
from typing import Any, Union, get_args, get_origin

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException

import grls.models.load.build  # noqa: F401  registers the generator classes by name, with those of build
from grls.errors import ConfigError, GrlsError, Option, out_of_memory
from grls.io.ending import quiet
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.io.option_errors import PlainParser, plain_error
from grls.io.recipes import config_file
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    RunState,
    check_checkpoint,
    last_checkpoint,
    refuse_unfinished,
)
from grls.train.core.clock import Meter, TrainingClock
from grls.train.core.datamodule import FitData
from grls.train.core.module import GeneratorModule
from grls.train.core.processes import FullyShard, leaving_no_group, only_training
from grls.train.core.trainer import SHARDED, GiveBackFreed, RefuseNaN, TimeLimit, Trainer, TrainingLines
from grls.train.generator.callbacks import ConstrainedRecall, SaveModel
from grls.train.result import TrainingResult
from grls.train.riches.callbacks import QuoteRecall
from grls.train.signatures import STAGES

_UNFIT = {
    "BatchSizeFinder": f"tries several sizes of batches, but a run has one: set {Option('data.batch_size')}.",
    "StochasticWeightAveraging": "changes the weights after the last measurement on dev, which chooses the "
    f"model: take EMAWeightAveraging, or set {Option('checkpoint.monitor', None)}.",
}
"""Callbacks of Lightning that do something else than they are meant for here, and why."""


class Parser(PlainParser, LightningArgumentParser):
    """Lightning's parser, with errors of one line, and whole numbers that stay whole."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        added: list[str] = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if hasattr(action, "_typehint"):
                action._typehint = whole_numbers_first(action._typehint)
        return added


def whole_numbers_first(union: Any) -> Any:
    """A union of types with ``int`` before ``float``; any other type as it is.

    The first type that fits decides: ``limit_train_batches: 1`` is one batch, 1.0 the whole epoch. Python
    caches unions without their order, so that of ``Optional[Union[int, float]]`` depends on imports.
    """
    members = get_args(union)
    if get_origin(union) is not Union or not {int, float} <= set(members):
        return union
    rest = [kind for kind in members if kind not in (int, float)]
    first = min(members.index(int), members.index(float))
    before = [kind for kind in members[:first] if kind in rest]
    return Union[(*before, int, float, *rest[len(before) :])]


class TrainCLI(LightningCLI):
    """LightningCLI with the output folder, the checkpoints, retrieval on dev and the saved model.

    ``called``: the command as it is typed, for errors.
    """

    def __init__(self, *args: Any, called: str, **kwargs: Any):
        self._called = called
        try:
            with ExitStack() as self._held:  # Lightning trains in here
                super().__init__(*args, **kwargs)
        except Exception as error:
            if (refusal := self._refusal(error)) is None:
                raise
            raise ConfigError(refusal) from error

    def _refusal(self, error: Exception) -> str | None:
        """What is wrong with the trainer's options, if that is why Lightning raised the error.

        A callback of ``--trainer.callbacks`` may raise, or Lightning itself: then its code is the innermost
        that is not of Python's library.
        """
        config = getattr(self, "config", {}).get("fit")
        if config is None or isinstance(error, GrlsError) or is_write_failure(error) or out_of_memory(error):
            return None
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        modules = [str(frame.f_globals.get("__name__")) for frame in frames]
        reason = re.sub(r"<([\w.]+) object at 0x\w+>", r"\1", " ".join(str(error).split()))
        reason = reason.removesuffix(".") or type(error).__name__
        names = {str(callback.class_path).rpartition(".")[2] for callback in config.trainer.callbacks or ()}
        for frame, module in zip(frames, modules, strict=True):
            name = type(frame.f_locals.get("self")).__name__
            if name in names and module.startswith("lightning."):
                return f"{Option('trainer.callbacks')} {name} cannot be used here: {reason}. Leave it out."
        outside = [name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]
        if not outside[-1].startswith(("lightning.", "torch.multiprocessing.")):  # which spawns for it
            return None
        usual, words = self._parser("fit").get_defaults(), re.findall(r"\w+", reason)
        changed = {
            f"{section}.{name}": [value] if isinstance(value, str | float | int) else []
            for section in ("trainer", "checkpoint", "last")
            for name, value in config[section].items()
            if value != usual[section].get(name) and name not in ("default_root_dir", "dirpath")
        }
        named = [option for option in changed if option.rpartition(".")[2] in words]
        options = named or [option for option in changed if option.startswith("trainer.")]
        given = [f"{Option(option, *changed[option])}" for option in options]
        return f"Lightning cannot train with {' '.join(given)}: {reason}."

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """``fit`` alone: the parsers of Lightning's other subcommands take a second to make."""
        return {"fit": LightningCLI.subcommands()["fit"]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options that do not belong to trainer, model or data."""
        parser.add_argument(
            "--output", type=str, default="runs/train", help="Folder for everything that the run writes."
        )
        parser.add_argument(
            "--resume", type=bool, default=False, help="Resume from the last checkpoint in the output folder."
        )
        parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
        parser.add_lightning_class_args(ModelCheckpoint, "last")
        parser.add_lightning_class_args(ConstrainedRecall, "recall")
        parser.add_lightning_class_args(QuoteRecall, "quotes")
        parser.add_lightning_class_args(SaveModel, "save")
        parser.set_defaults(
            {
                "checkpoint.monitor": "dev_recall",
                "checkpoint.mode": "max",
                "checkpoint.filename": "best",
                "checkpoint.enable_version_counter": False,
                "last.filename": "last",
                "last.enable_version_counter": False,
                "last.save_on_train_epoch_end": True,
            }
        )
        parser.link_arguments("output", "trainer.default_root_dir")
        parser.link_arguments("output", "checkpoint.dirpath", compute_fn=_checkpoints)
        parser.link_arguments("output", "last.dirpath", compute_fn=_checkpoints)
        parser.link_arguments("output", "save.folder", compute_fn=_model)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and refuse files that cannot be read or written before the training begins."""
        for stage in (parser, *self._subcommand_parsers.values()):
            stage.prog = self._called
        super().parse_arguments(parser, args)
        config = self.config[self.config["subcommand"]]
        if config.resume:
            if config.get("ckpt_path") is not None:
                raise ConfigError(
                    f"{Option('resume')} takes the last checkpoint in {Option('output')}, and "
                    f"{Option('ckpt_path')} names a checkpoint: give only one of the two."
                )
            config.ckpt_path = str(last_checkpoint(config.output))
        if not isinstance(config.seed_everything, bool) and config.seed_everything is not None:
            for part in (config.model, config.data):
                if "seed" in part.init_args and part.init_args.seed is None:
                    part.init_args.seed = config.seed_everything
        self._state = RunState.of_options(config.as_dict())
        refuse_unwritable(_checkpoints(config.output), folder=True)
        refuse_foreign(_model(config.output), "config.json")
        self._held.enter_context(only_training(config.output))
        if config.get("ckpt_path") is None:
            refuse_unfinished(config.output)
        else:
            strategy = config.trainer.strategy
            named = strategy if isinstance(strategy, str) else getattr(strategy, "class_path", "")
            sharded = named in SHARDED or named.rpartition(".")[2] == FullyShard.__name__
            before = check_checkpoint(config.ckpt_path, config.output, sharded)
            if before is not None:
                self._state.refuse_other(before, config.output if config.resume else config.ckpt_path)

    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
        except ValueError as error:
            reason = plain_error(str(error), self._called)
            if reason == str(error):
                raise
            wrong = f"{Option('trainer.callbacks')}" if "subclass of Callback" in reason else "the options"
            raise ConfigError(f"cannot use {wrong}: {reason}") from error
        self.model.state = self._state

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """Make the trainer, with CSV and TensorBoard logs in one folder unless the config names loggers."""
        config = self.config[str(self.subcommand)]
        if config.trainer.logger is None:
            table = CSVLogger(config.output, name="logs")
            kwargs["logger"] = [table, TensorBoardLogger(config.output, name="logs", version=table.version)]
        if config.trainer.plugins is None:
            kwargs["plugins"] = [AtomicCheckpointIO()]
        trainer = super().instantiate_trainer(**kwargs)
        callbacks: list[L.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            reason = _UNFIT.get(type(callback).__name__)
            if reason is not None and config.checkpoint.monitor is not None:
                raise ConfigError(f"{Option('trainer.callbacks')} {type(callback).__name__} {reason}")
        # Dev is measured before other callbacks end the measurement: weight averaging puts its weights back.
        callbacks.sort(key=lambda callback: not isinstance(callback, ConstrainedRecall | QuoteRecall))
        return trainer


def _checkpoints(output: str) -> str:
    return str(Path(output) / "checkpoints")


def _model(output: str) -> str:
    return str(Path(output) / "model")


def train(arguments: Sequence[str], called: str = "grls train") -> None:
    """Run one training stage; ``called`` is the command as it is typed, for errors."""
    quiet()
    try:
        fit_stage(arguments, called)
    except SIGTERMException as end:
        remedy = " ".join(getattr(end, "__notes__", ["start it again."]))  # SaveModel adds the note
        print(f"error: the run was ended by SIGTERM before it was done; {remedy}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGTERM) from None


@leaving_no_group()
def fit_stage(
    arguments: Sequence[str], called: str = "grls train", clock: TrainingClock | None = None
) -> TrainCLI:
    """Train a stage, and return the trainer, the model and the data with their options.

    ``clock`` limits the time, and its reports replace lines and bars.
    """
    progress: list[L.Callback] = [TrainingLines()]
    if clock is not None:
        progress = [TimeLimit(clock), *([] if clock.meter else progress)]
    return TrainCLI(
        GeneratorModule,
        FitData,
        args=["fit", *arguments],
        subclass_mode_model=True,
        subclass_mode_data=True,
        seed_everything_default=0,
        trainer_class=Trainer,
        parser_class=Parser,
        called=called,
        trainer_defaults={
            "use_distributed_sampler": False,
            "num_sanity_val_steps": 0,
            "enable_model_summary": False,
            "callbacks": [GiveBackFreed(), RefuseNaN(), *progress],
        },
        save_config_kwargs={"overwrite": True},
        auto_configure_optimizers=False,
    )


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
            "data/mine", "data.spans": {"words": 8}}``. None is null. ``output`` must be there.
        recipes: Names of recipes (``chains``, ``default/chains``), or YAML files; later ones override
            earlier ones, and ``options`` override all.
        max_seconds: Longest time of the call; when it is over, dev is measured once more and the best
            weights are kept.
        meter: Called with every step (:class:`~grls.train.core.clock.TrainingStep`), in place of bars and
            lines.
    """
    if name not in STAGES:
        near = get_close_matches(name, STAGES, 1) or STAGES
        raise ConfigError(f"there is no training stage {name!r}; take {' or '.join(near)}.")
    if "output" not in options:
        raise ConfigError(f"the training stage {name} needs the option output, the folder that it writes.")
    clock = TrainingClock(name, max_seconds, meter)
    arguments = [*STAGES[name].arguments, *(f"--config={config_file(recipe)}" for recipe in recipes)]
    if meter is not None:
        arguments += ["--trainer.enable_progress_bar=false"]
    for option, value in options.items():
        text = str(value) if isinstance(value, str | Path) else json.dumps(value, default=str)
        arguments.append(f"--{option}={text}")

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
    best = next(callback for callback in trainer.checkpoint_callbacks if isinstance(callback, BestCheckpoint))
    return TrainingResult(
        output / "model",
        Path(trainer.log_dir or output),
        str(best.monitor),
        None if best.best_model_score is None else float(best.best_model_score),
        trainer.global_step,
        len(trainer.datamodule.train_examples),
        clock.seconds,
        clock.time_is_up,
    )
