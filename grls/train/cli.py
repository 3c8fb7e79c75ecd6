"""``grls train STAGE`` and ``train.py``: a LightningCLI with one output folder for everything a run writes.

    grls train retrieve --config configs/retrieve.yaml --config configs/scratch/retrieve.yaml …

Under ``output``: ``checkpoints/`` (best and last), ``logs/`` (CSV and TensorBoard, and ``config.yaml`` with
all options) and ``model/`` (the best model, for the next stage).

The two checkpoints have different aims. ``checkpoint`` keeps the weights with the best dev score; it is
written when dev is measured. ``last`` is for resuming (``--resume true``); it is written every epoch, or
every ``--last.every_n_train_steps``. One callback for both would judge new weights by an old score.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.utilities.exceptions import SIGTERMException

import grls.models.load.build  # noqa: F401  registers the generator classes by name, with those of build
from grls.errors import ConfigError, Option
from grls.io.ending import quiet, require
from grls.io.files import refuse_foreign, refuse_unwritable
from grls.io.option_errors import PlainParser, plain_error
from grls.io.recipes import config_file
from grls.models.precision import accelerator, has_bfloat16, warn_of_emulation
from grls.train.chains.mining import MineNegatives
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    check_checkpoint,
    last_checkpoint,
    refuse_unfinished,
    tell_changed,
)
from grls.train.core.clock import Meter, TimeLimit, TrainingClock, TrainingLines
from grls.train.core.datamodule import FitData
from grls.train.core.module import GeneratorModule, GiveBackFreed, RefuseNaN
from grls.train.core.processes import FullyShard, launched, leaving_no_group, only_training
from grls.train.result import TrainingResult
from grls.train.riches.callbacks import QuoteRecall
from grls.train.stages.callbacks import ConstrainedRecall, SaveModel

Precision = Literal[
    "auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true",
    "transformer-engine", "transformer-engine-float16", "64", "32", "16", "bf16", 64, 32, 16,
]  # fmt: skip
"""Lightning's precisions, and ``auto``."""


_SHARDED = ("fsdp", "fsdp_cpu_offload")
"""Values of ``--trainer.strategy`` that shard weights (:class:`grls.train.core.processes.FullyShard`)."""


class _Epochs(_FitLoop):
    """Lightning's loop, resumed correctly at the end of an epoch with ``max_steps``.

    Lightning (2.6) assumes that every run with ``max_steps`` stopped within an epoch. Resumed at the end of
    one, it trains one more step in that epoch and counts it twice. Resumed again, it ends at once, as if the
    training were complete.
    """

    def _iteration_based_training(self) -> bool:
        return False


class Trainer(L.Trainer):
    """Lightning's trainer, with a loop that resumes exactly where a run stopped.

    Args:
        precision: Lightning's precision, or ``auto``: ``bf16-mixed`` where the processor has instructions for
            it, else ``32-true``; null: ``32-true``.
        kwargs: The other options of Lightning's trainer.
    """

    def __init__(self, *, precision: Precision | None = None, **kwargs: Any):
        device = torch.device("cpu") if kwargs.get("accelerator") == "cpu" else accelerator()
        if str(precision).startswith("bf16"):
            warn_of_emulation(device, str(Option("trainer.precision", "32-true", "auto")))
        if precision == "auto":
            precision = "bf16-mixed" if has_bfloat16(device) else "32-true"
        started = launched()
        if started is not None and kwargs.get("devices", "auto") == "auto":
            kwargs |= {"devices": started.devices, "num_nodes": started.nodes}
        if kwargs.get("strategy") in _SHARDED:
            kwargs["strategy"] = FullyShard(cpu_offload="offload" in kwargs["strategy"])
        if isinstance(kwargs.get("strategy"), FullyShard):
            kwargs["inference_mode"] = False  # weights that are gathered there could not be trained
        super().__init__(precision=precision, **kwargs)
        loop = _Epochs(self, self.fit_loop.min_epochs, self.fit_loop.max_epochs)
        loop.epoch_loop = self.fit_loop.epoch_loop
        self.fit_loop = loop


class Parser(PlainParser, LightningArgumentParser):
    """Lightning's parser, with errors of one line, and whole numbers that stay whole."""

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the options of a class; see :func:`whole_numbers_first`."""
        added: list[str] = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if hasattr(action, "_typehint"):
                action._typehint = whole_numbers_first(action._typehint)
        return added


def whole_numbers_first(kind: Any) -> Any:
    """A union of types with ``int`` before ``float``; any other type as it is.

    The first type that fits decides, and a whole number fits both: ``limit_train_batches: 1`` is one batch,
    1.0 the whole epoch. Python caches unions without their order, so that ``Optional[Union[int,
    float]]`` has the order of whichever module was imported first.
    """
    kinds = get_args(kind)
    if get_origin(kind) is not Union or not {int, float} <= set(kinds):
        return kind
    others = [each for each in kinds if each not in (int, float)]
    first = min(kinds.index(int), kinds.index(float))
    before = [each for each in kinds[:first] if each in others]
    return Union[(*before, int, float, *others[len(before) :])]


class TrainCLI(LightningCLI):
    """LightningCLI with the output folder, the checkpoints, retrieval on dev and the saved model.

    Args:
        args: Those of Lightning.
        called: The command as it is typed, for errors.
        kwargs: Those of Lightning.

    Raises:
        WriteError: Another training writes the output folder.
    """

    def __init__(self, *args: Any, called: str, **kwargs: Any):
        self._called = called
        with ExitStack() as self._held:  # Lightning trains in here
            super().__init__(*args, **kwargs)

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
        parser.add_lightning_class_args(MineNegatives, "mine")
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
        refuse_unwritable(_checkpoints(config.output), folder=True)
        refuse_foreign(_model(config.output), "config.json")
        self._held.enter_context(only_training(config.output))
        if config.get("ckpt_path") is None:
            refuse_unfinished(config.output)
        else:
            strategy = config.trainer.strategy
            named = strategy if isinstance(strategy, str) else getattr(strategy, "class_path", "")
            sharded = named in _SHARDED or named.rpartition(".")[2] == FullyShard.__name__
            check_checkpoint(config.ckpt_path, config.output, sharded)
            stage = self._subcommand_parsers[self.config["subcommand"]]
            tell_changed(config.ckpt_path, config.output, stage.dump(config, skip_none=False))

    def instantiate_classes(self) -> None:
        """Make model, data and trainer.

        Raises:
            ConfigError: One of them cannot be made. (jsonargparse keeps only the text of the first error.)
        """
        try:
            super().instantiate_classes()
        except ValueError as error:
            reason = plain_error(str(error), self._called)
            if reason == str(error):
                raise
            raise ConfigError(f"cannot use the options: {reason}") from error

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """Make the trainer, with CSV and TensorBoard logs in one folder unless the config names loggers."""
        config = self.config[str(self.subcommand)]
        if config.trainer.logger is None:
            table = CSVLogger(config.output, name="logs")
            kwargs["logger"] = [table, TensorBoardLogger(config.output, name="logs", version=table.version)]
        if config.trainer.plugins is None:
            kwargs["plugins"] = [AtomicCheckpointIO()]
        return super().instantiate_trainer(**kwargs)


def _checkpoints(output: str) -> str:
    return str(Path(output) / "checkpoints")


def _model(output: str) -> str:
    return str(Path(output) / "model")


def train(arguments: Sequence[str], called: str = "grls train") -> None:
    """Run one training stage.

    Args:
        arguments: The arguments of Lightning's ``fit``.
        called: The command as it is typed, for its errors.

    Raises:
        SystemExit: SIGTERM ended the run. The status is 143, as in a shell; Lightning would exit with 0.
    """
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

    Args:
        arguments: The arguments of Lightning's ``fit``.
        called: The command as it is typed, for errors.
        clock: Counts the steps and limits the time; its reports replace lines and bars; None: no limit.

    Raises:
        SIGTERMException: SIGTERM ended the run.
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
            "callbacks": [GiveBackFreed(), RefuseNaN(), *progress],
        },
        save_config_kwargs={"overwrite": True},
        auto_configure_optimizers=False,
    )


# The stages that LightningCLI trains, by name. The module is light to import.


class TrainingStage(NamedTuple):
    """The classes of a stage.

    Attributes:
        model: Path of its LightningModule.
        data: Path of its LightningDataModule.
        measured: Option groups of callbacks that measure on dev or mine negatives -> path of the callback.
        options: Default options of the stage; options of the command line override them.
    """

    model: str
    data: str
    measured: Mapping[str, str] = MappingProxyType({})
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments that precede those of the command line."""
        return [f"--model={self.model}", f"--data={self.data}", *self.options]


_RECALL = {"recall": "grls.train.stages.callbacks.ConstrainedRecall"}

STAGES = {
    "memorise": TrainingStage(
        "grls.train.stages.module.Memorise", "grls.train.stages.data.MemoriseData", _RECALL
    ),
    "retrieve": TrainingStage(
        "grls.train.stages.module.Retrieve", "grls.train.stages.data.RetrieveData", _RECALL
    ),
    "chains": TrainingStage(
        "grls.train.chains.module.RetrieveChains",
        "grls.train.chains.data.ChainData",
        {**_RECALL, "mine": "grls.train.chains.mining.MineNegatives"},
    ),
    "riches": TrainingStage(
        "grls.train.riches.module.Interlace",
        "grls.train.riches.data.InterlacedData",
        {"quotes": "grls.train.riches.callbacks.QuoteRecall"},
    ),
    "doc2query": TrainingStage(
        "grls.train.doc2query.module.WriteQueries",
        "grls.train.doc2query.data.QueryData",
        options=("--checkpoint.monitor=dev_loss", "--checkpoint.mode=min"),
    ),
}


# Trains a stage of LightningCLI from Python, as ``grls train STAGE`` does from a shell.
#
# The options are those of the command, by their names on the command line. Every error is one of grls.


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
