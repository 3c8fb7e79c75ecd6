"""Trains a stage of a generator: `grls train STAGE`, ``Generator.fit`` and `grls fit` call :func:`train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pydoc import locate

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException

from grls.errors import ConfigError, GrlsError, Option, out_of_memory
from grls.io.ending import quiet
from grls.io.files import is_write_failure
from grls.train.core.clock import TrainingClock, TrainingResult
from grls.train.core.datamodule import FitData
from grls.train.core.engine import begin, fit_model
from grls.train.core.module import GeneratorModule
from grls.train.core.processes import only_training
from grls.train.doc2query.data import QueryData
from grls.train.generator.callbacks import ConstrainedRecall
from grls.train.generator.data import MemoriseData, RetrieveData
from grls.train.generator.module import Retrieve
from grls.train.options import RecallStage, RichesStage, TrainerOptions, TrainingStage, as_record
from grls.train.riches.callbacks import QuoteRecall
from grls.train.riches.data import InterlacedData

_UNFIT = {
    "BackboneFinetuning": f"needs a module with a `backbone`: set {Option('model.freeze_encoder', True)}.",
    "BatchSizeFinder": f"tries several sizes of batches, but a run has one: set {Option('data.batch_size')}.",
    "StochasticWeightAveraging": "changes the weights after the last measurement on dev, which chooses the "
    f"model: take EMAWeightAveraging, or set {Option('checkpoint.monitor', None)}.",
}
"""Callbacks of Lightning that do something else than they are meant for here, and why."""


PARTS: dict[str, tuple[Callable[..., GeneratorModule], type[FitData]]] = {
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


def train(options: TrainingStage, clock: TrainingClock | None = None) -> TrainingResult:
    """Train a stage. ``clock`` limits the time; where a meter listens to it, nothing is printed."""
    quiet()
    trainer, record = options.trainer, as_record(options)
    with only_training(options.output):
        resumed = begin(record, options.output, options.resume, trainer.strategy)
        L.seed_everything(options.seed_everything, workers=True)
        make_module, make_data = PARTS[options.name]
        seed = options.seed_everything
        module, data = make_module(options.model, seed=seed), make_data(options.data, seed)
        with _lightning(trainer):
            given, checkpoint = vars(trainer) | trainer.more, options.checkpoint
            del given["callbacks"], given["more"]
            return fit_model(
                module, data, options.output, record, resumed, clock or TrainingClock(options.name),
                trainer=given, best={"monitor": checkpoint.monitor, "mode": checkpoint.mode},
                last=vars(options.last), callbacks=[*measures(options), *_callbacks(options)],
            )  # fmt: skip


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
