"""Trains an encoder, a bi-encoder or a reranker, by Lightning, and keeps the best epoch.

A run writes into one folder: ``model/``, ``logs/`` (settings, losses and the measure on dev) and
``checkpoints/`` (to resume from; they hold pickles, so do not share them).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from pydoc import locate
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger

from grls.errors import ConfigError, Option, WriteError
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.models.option_names import TrainerPrecision
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    check_checkpoint,
    last_checkpoint,
    refuse_unfinished,
)
from grls.train.core.clock import TrainingClock
from grls.train.core.module import EncoderModule
from grls.train.core.processes import by_first, is_first, launched, leaving_no_group
from grls.train.core.trainer import (
    LEARNING_RATE,
    GiveBackFreed,
    RefuseNaN,
    TimeLimit,
    Trainer,
    TrainingLines,
    load_weights,
    spoiled,
)
from grls.train.result import TrainingResult

log = logging.getLogger(__name__)

_PRECISIONS: dict[str, TrainerPrecision] = {"float32": "32-true", "bfloat16": "bf16-mixed", "auto": "auto"}


@leaving_no_group()
def fit_encoder(
    module: EncoderModule,
    data: Mapping[str, Any],
    output: str | Path,
    resume: bool,
    clock: TrainingClock,
    *,
    examples: int,
    steps: int | None = None,
    device: str = "cpu",
    unused: bool = True,
    dev: bool = True,
    logger: str | None = None,
    **more: Any,
) -> TrainingResult:
    """Train, and write the model of the best epoch (without dev: of the last epoch) to ``output/model``.

    The losses are a function of the seed; a resumed run has the losses of an uninterrupted one.

    Args:
        data: Data module or loaders, as Lightning's ``fit`` takes them.
        steps: All optimizer steps; None: as many as the epochs have.
        unused: Some weights have no gradient, which ``ddp`` must know.
        dev: Dev is measured.
        logger: Class of a further logger.
        more: Further options of Lightning's trainer.
    """
    options, state, strategy = module.options, module.state, module.options.strategy
    folder, last, sharded = Path(output), last_checkpoint(output), strategy != "ddp"
    refuse_unwritable(last.parent, folder=True)
    refuse_foreign(folder / "model", module.marker)
    if resume:
        state.refuse_other(check_checkpoint(str(last), shards=sharded, option="fit.strategy"), folder)
    else:
        refuse_unfinished(str(folder), warn=False, model=module.marker)
    checkpoints: dict[str, Any] = {"dirpath": last.parent, "enable_version_counter": False}
    best = BestCheckpoint(**checkpoints, filename="best", **module.best)
    loggers: list[Any] = [CSVLogger(folder, name="logs")]
    if logger is not None:
        kind: Any = locate(logger)
        if not (isinstance(kind, type) and issubclass(kind, Logger)):
            raise ConfigError(f"fit.logger: {logger} is no logger of Lightning that is installed.")
        make: Any = kind
        loggers.append(make(save_dir=str(folder)))
    if not sharded:
        alone = launched() in (None, (1, 1))
        strategy = "auto" if alone else "ddp_find_unused_parameters_true" if unused else "ddp"
    trainer = Trainer(
        accelerator=device, devices=1 if launched() is None else "auto", strategy=strategy,
        precision=_PRECISIONS[options.precision], remedy=Option("fit.precision", "float32", "auto"),
        plugins=[] if sharded else [AtomicCheckpointIO()], use_distributed_sampler=False,
        callbacks=[
            GiveBackFreed(), RefuseNaN(LEARNING_RATE), TimeLimit(clock, steps),
            *([] if clock.meter else [TrainingLines(steps)]), *([best] if dev else []),
            ModelCheckpoint(**checkpoints, filename="last"),
        ],
        enable_model_summary=False, enable_progress_bar=clock.meter is None, num_sanity_val_steps=0,
        limit_val_batches=None if dev else 0,
        max_epochs=options.epochs, logger=loggers, **more,
    )  # fmt: skip
    try:
        for each in loggers:
            each.log_hyperparams(state.settings)
        trainer.fit(module, **data, ckpt_path=str(last) if resume else None, weights_only=not sharded)
    except OSError as error:  # of the log: checkpoints have an error of their own
        if not is_write_failure(error):
            raise
        raise WriteError(f"cannot write under {folder} ({error}). Free disk space.") from error
    if best.best_model_path:
        try:  # the folder may have been moved since
            load_weights(trainer, module, last.parent / Path(best.best_model_path).name)
        except ConfigError as error:
            log.warning("%s The model of the last step is written.", error)
    model = module.plain_model() or module.model
    if is_first() and spoiled(dict(model.named_parameters())) is not None:
        raise ConfigError(f"weights are not finite, so they are not kept: lower {LEARNING_RATE}.")
    by_first(lambda: module.save(model, folder / "model"))
    return TrainingResult(
        folder / "model", Path(trainer.log_dir or folder), module.measure,
        None if best.best_model_score is None else float(best.best_model_score),
        trainer.global_step, examples, clock.seconds, clock.time_is_up,
    )  # fmt: skip
