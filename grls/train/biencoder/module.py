"""Trains a bi-encoder by Lightning with a loss of sentence-transformers, and keeps the best epoch.

A run writes into one folder: ``model/`` (for retrieval), ``logs/`` (settings, losses and dev recall) and
``checkpoints/`` (to resume from; they hold pickles, so do not share them).
"""

from __future__ import annotations

import logging
import math
from copy import deepcopy
from pathlib import Path
from pydoc import locate
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor
from transformers import PreTrainedModel

from grls.errors import ConfigError, Option, WriteError
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.models.biencoder import STAGE, BiEncoderModel
from grls.models.load.sentence_folder import MODULES, modules_of
from grls.models.lora import add_adapters
from grls.models.precision import accelerator
from grls.models.sentence_model import COSINE
from grls.train.biencoder.data import BiEncoderData, PairBatch
from grls.train.biencoder.dev import HopEvaluator, Split, dev_evaluator, dev_metric
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.core.checkpoints import (
    BestCheckpoint,
    RunState,
    check_checkpoint,
    last_checkpoint,
    refuse_unfinished,
)
from grls.train.core.clock import TrainingClock
from grls.train.core.module import TrainingModule
from grls.train.core.processes import averaged, by_first, is_first, layers_of, leaving_no_group
from grls.train.core.trainer import (
    LEARNING_RATE,
    EncoderTrainer,
    TimeLimit,
    TrainingLines,
    is_metered,
    load_weights,
    spoiled,
)
from grls.train.result import TrainingResult

log = logging.getLogger(__name__)


class BiEncoderModule(TrainingModule):
    """A bi-encoder, which is trained in place for ``steps`` optimizer steps, and its measurement on dev."""

    def __init__(
        self,
        encoder: BiEncoderModel,
        options: BiEncoderOptions,
        steps: int,
        evaluator: HopEvaluator | None,
        state: RunState,
    ):
        super().__init__(options.seed, options.optimizer, state)
        self.model = encoder.model
        self.options = options
        self.steps = steps
        self._evaluator = evaluator
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        if options.lora_rank:
            network = next((part for part in self.model.modules() if isinstance(part, PreTrainedModel)), None)
            if network is None:
                raise ConfigError(
                    "lora_rank: the model has no network of transformers to add adapters to: set it to 0."
                )
            add_adapters(network, options.lora_rank)
        if options.strategy != "ddp":
            layers_of(self.model)
            for name, weights in self.model.named_parameters():
                if ".pooler." in name:  # no embedding uses it, and shards keep no state of it
                    weights.requires_grad = False
        scale = options.scale
        if scale is None:
            normalised = any(isinstance(module, Normalize) for module in modules_of(self.model))
            scale = 20.0 if encoder.similarity == COSINE or normalised else 1.0
        widest = max(options.matryoshka or (0,))
        if widest > encoder.dimension:
            raise ConfigError(
                f"fit.matryoshka: the embeddings have {encoder.dimension} dimensions, got {widest}: give "
                f"{encoder.dimension} at most."
            )
        # A tuple: its weights are those of the model.
        self._loss = (MaskedRankingLoss(self.model, scale, encoder.scores, options),)

    def plain_copy(self) -> Any:
        model = deepcopy(self.model)
        model.model_card_data.model = model  # else the card of the copy is that of the shards
        return model

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        loss = self.within(self._loss[0], *batch)
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        assert self._evaluator is not None
        with self.whole_weights():
            measures: dict[str, float] = self._evaluator(self.model)
        recall = dev_metric(self.options.k)
        for name, key in (("dev_recall", recall), ("dev_ndcg", recall.replace("recall@", "ndcg@"))):
            self.log(name, measures[key], batch_size=1, sync_dist=False)
        if is_first() and not is_metered(self.trainer):
            step = f"epoch {self.current_epoch + 1}, step {self.global_step}/{self.steps}"
            print(f"{step}: dev recall@{self.options.k} {measures[recall]:.4f}", flush=True)

    def configure_optimizers(self) -> Any:
        return self.optimizer_and_schedule(self.options, self.steps)


def check_negatives(options: BiEncoderOptions, examples: int | None = None) -> None:
    alone = options.batch_size == 1 or not options.in_batch_negatives
    if options.hard_negatives or not (alone or examples == 1):
        return
    cause, remedy = "one training example", "add examples"
    if options.batch_size == 1:
        cause, remedy = "a batch_size of 1", "raise it"
    elif not options.in_batch_negatives:
        cause, remedy = "in_batch_negatives false", "set it to true"
    raise ConfigError(f"{cause} leaves no negatives: {remedy}, or set hard_negatives.")


@leaving_no_group()
def fit_biencoder(
    encoder: BiEncoderModel,
    examples: BiEncoderExamples,
    dev: Split | None,
    options: BiEncoderOptions,
    output: str | Path,
    state: RunState,
    resume: bool,
    clock: TrainingClock,
) -> TrainingResult:
    """Train, and write the model of the best epoch (without dev: of the last epoch) to ``output/model``.

    The losses are a function of the seed; a resumed run has the losses of an uninterrupted one. The
    encoder is trained in place.
    """
    check_negatives(options, len(examples))
    if not any(weight.requires_grad for weight in encoder.model.parameters()):
        raise ConfigError(
            "the model has no weights to train (a bag of words, or frozen word embeddings): take another one."
        )
    folder, last, sharded = Path(output), last_checkpoint(output), options.strategy != "ddp"
    refuse_unwritable(last.parent, folder=True)
    refuse_foreign(folder / "model", MODULES)
    texts = examples.passages()
    if cut := encoder.count_cut(texts):
        log.warning(
            encoder.cut_notice(cut, len(texts), f"{Option('max_tokens')!s} (of grls train biencoder)")
        )
    state = state._replace(settings={**state.settings, **vars(options)})
    if resume:
        state.refuse_other(check_checkpoint(str(last), shards=sharded, option="fit.strategy"), folder)
    else:
        refuse_unfinished(str(folder), warn=False, model=MODULES)
    evaluator = None
    if dev is not None:
        evaluator = dev_evaluator(encoder, dev, options, examples.options.multistep is True)
    steps = options.epochs * math.ceil(len(examples) / options.batch_size)
    steps = min(options.max_steps or steps, steps)
    checkpoints: dict[str, Any] = {"dirpath": last.parent, "enable_version_counter": False}
    best = BestCheckpoint(
        **checkpoints, filename="best", monitor="dev_recall", mode="max", finer=("dev_ndcg", "max")
    )
    loggers: list[Any] = [CSVLogger(folder, name="logs")]
    if options.logger is not None:
        kind: Any = locate(options.logger)
        if not (isinstance(kind, type) and issubclass(kind, Logger)):
            raise ConfigError(f"fit.logger: {options.logger} is no logger of Lightning that is installed.")
        make: Any = kind
        loggers.append(make(save_dir=str(folder)))
    trainer = EncoderTrainer(
        torch.device("cpu") if options.device == "cpu" else accelerator(),
        options.precision,
        options.strategy,
        True,
        [
            TimeLimit(clock, steps), *([] if clock.meter else [TrainingLines()]),
            *([best] if evaluator else []), ModelCheckpoint(**checkpoints, filename="last"),
        ],
        max_epochs=options.epochs, gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        limit_val_batches=0 if evaluator is None else 1, log_every_n_steps=options.log_every,
        logger=loggers, enable_progress_bar=clock.meter is None,
    )  # fmt: skip
    module = BiEncoderModule(encoder, options, steps, evaluator, state)
    data = BiEncoderData(examples, encoder, options)
    try:
        for logger in loggers:
            logger.log_hyperparams(state.settings)
        trainer.fit(
            module, datamodule=data, ckpt_path=str(last) if resume else None, weights_only=not sharded
        )
    except OSError as error:  # of the log: checkpoints have an error of their own
        if not is_write_failure(error):
            raise
        raise WriteError(f"cannot write under {folder} ({error}). Free disk space.") from error
    if best.best_model_path:
        try:  # the folder may have been moved since
            load_weights(trainer, module, last.parent / Path(best.best_model_path).name)
        except ConfigError as error:
            log.warning("%s The model of the last step is written.", error)
    encoder.model = module.plain_model() or encoder.model
    if is_first() and spoiled(dict(encoder.model.named_parameters())) is not None:
        raise ConfigError(f"weights are not finite, so they are not kept: lower {LEARNING_RATE}.")
    encoder.stages = (*encoder.stages, STAGE)
    encoder.learned_done = examples.done
    by_first(lambda: encoder.save(folder / "model"))
    return TrainingResult(
        folder / "model", Path(trainer.log_dir or folder), f"recall@{options.k}",
        None if best.best_model_score is None else float(best.best_model_score),
        trainer.global_step, len(examples), clock.seconds, clock.time_is_up,
    )  # fmt: skip
