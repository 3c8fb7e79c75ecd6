"""Trains a bi-encoder by Lightning with a loss of sentence-transformers, and keeps the best epoch.

A run writes into one folder: ``model/`` (for retrieval), ``logs/`` (settings, losses and dev recall) and
``checkpoints/`` (to resume from; they hold pickles, so do not share them). Dev recall is the exact evaluation
of sentence-transformers over the whole corpus, or a sample of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from pydoc import locate
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor
from transformers import PreTrainedModel

from grls.errors import ConfigError, MismatchError, Option, WriteError
from grls.io.files import is_write_failure, refuse_foreign, refuse_unwritable
from grls.models.biencoder import STAGE, BiEncoderModel
from grls.models.load.sentence_folder import MODULES, modules_of
from grls.models.lora import add_adapters, merge_adapters
from grls.models.precision import accelerator, has_bfloat16, warn_of_emulation
from grls.models.sentence_model import COSINE
from grls.train.biencoder.data import Batch, BiEncoderData
from grls.train.biencoder.dev import HopEvaluator, Split, dev_evaluator, dev_metric
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    check_checkpoint,
    last_checkpoint,
    read_checkpoint,
    refuse_other_run,
    refuse_unfinished,
)
from grls.train.core.clock import TimeLimit, TrainingClock, TrainingLines, is_metered
from grls.train.core.module import RERANKER, GiveBackFreed, RefuseNaN, optimizer_and_schedule, spoiled
from grls.train.core.processes import (
    META,
    FullyShard,
    Launched,
    Within,
    averaged,
    by_first,
    gathered_weights,
    is_first,
    launched,
    layers_of,
    leaving_no_group,
    whole_weights,
)
from grls.train.result import TrainingResult

log = logging.getLogger(__name__)

_SETTINGS, _FILES = "settings", "files"
"""Keys of a checkpoint: options of the run, and fingerprints of what it reads."""
_FREE = {"device", "log_every", "gradient_checkpointing", "logger", "mini_batch_size"}
"""Settings that a resumed run may change, since they do not change the losses."""


class BiEncoderModule(L.LightningModule):
    """A bi-encoder, its loss, its optimizer and its measurement on dev.

    Args:
        encoder: The bi-encoder; it is trained in place.
        options: The options of the training. Dropout is a function of (seed, batch number, rank): a resumed
            run repeats an uninterrupted one.
        steps: Optimizer steps of the whole training.
        evaluator: Measures dev after each epoch; None: nothing does.
        kept: What checkpoints hold beside weights: settings and fingerprints of the run.

    Raises:
        ConfigError: The model has no network for adapters, or no layers to shard.
    """

    def __init__(
        self,
        encoder: BiEncoderModel,
        options: BiEncoderOptions,
        steps: int,
        evaluator: HopEvaluator | None,
        kept: Mapping[str, Any],
    ):
        super().__init__()
        self.model = encoder.model
        self.options = options
        self.steps = steps
        self._evaluator = evaluator
        self._kept = dict(kept)
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        if options.lora_rank:
            network = next((part for part in self.model.modules() if isinstance(part, PreTrainedModel)), None)
            if network is None:
                raise ConfigError(
                    "lora_rank: the model has no network of transformers to add adapters to: set it to 0."
                )
            add_adapters(network, options.lora_rank, options.lora_dropout)
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
        # Tuples: their weights are those of the model.
        self._loss = (MaskedRankingLoss(self.model, scale, encoder.scores, options),)
        self._whole: tuple[Within, ...] = ()
        self._plain: tuple[Any, ...] = ()

    def configure_model(self) -> None:
        """Shard the model, where the strategy does."""
        strategy = self.trainer.strategy
        if isinstance(strategy, FullyShard) and not self._whole:
            if is_first():
                plain = deepcopy(self.model)
                plain.model_card_data.model = plain  # else the card of the copy is that of the shards
                self._plain = (plain,)
            self._whole = (strategy.shard(self.model),)

    def plain_model(self) -> Any:
        """The model to save, with adapters merged; None on other processes than the first of a sharded run.

        All processes must call it.
        """
        model: Any = self.model
        if self._whole:
            weights = gathered_weights(self.model)
            if not self._plain:
                return None
            (model,) = self._plain
            model.load_state_dict(weights)
        merge_adapters(model)
        return model

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed dropout by the batch, and undo the eval mode of loading and validation."""
        self.model.train()
        done, rank = self.trainer.fit_loop.epoch_loop.total_batch_idx, self.global_rank
        seed = self.options.seed
        torch.manual_seed(hash((seed, done, rank) if rank else (seed, done)) % 2**63)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of one batch, among several processes ``weighed``; logs ``train_loss``."""
        features, labels = batch
        (work,) = self._loss
        loss: Tensor = self._whole[0](work, features, labels) if self._whole else work(features, labels)
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log ``dev_recall`` and ``dev_ndcg``, by the evaluation of sentence-transformers."""
        assert self._evaluator is not None
        with whole_weights(self.model, *(self._whole or (None,))):
            measures: dict[str, float] = self._evaluator(self.model)
        recall = dev_metric(self.options.k)
        for name, key in (("dev_recall", recall), ("dev_ndcg", recall.replace("recall@", "ndcg@"))):
            self.log(name, measures[key], batch_size=1, sync_dist=False)
        if is_first() and not is_metered(self.trainer):
            place = f"epoch {self.current_epoch + 1}, step {self.global_step}/{self.steps}"
            print(f"{place}: dev recall@{self.options.k} {measures[recall]:.4f}", flush=True)

    def configure_optimizers(self) -> Any:
        """The optimizer and its schedule, which advances every optimizer step."""
        chosen = self.options
        return optimizer_and_schedule(
            self, chosen.optimizer, chosen.learning_rate, chosen.weight_decay, chosen.schedule, chosen.warmup,
            self.steps,
        )  # fmt: skip

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what a resumed run must have, too."""
        checkpoint.update(self._kept)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another model.

        Raises:
            MismatchError: The checkpoint is of another model.
        """
        refuse_other_run(self, checkpoint, self.options.optimizer)


def check_negatives(options: BiEncoderOptions, examples: int | None = None) -> None:
    """Refuse a training without negatives.

    Raises:
        ConfigError: There are no hard negatives, and none in a batch either: it has one example, there is one
            in all, or they are off.
    """
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
    settings: Mapping[str, Any],
    resume: bool,
    files: Mapping[str, str],
    clock: TrainingClock,
) -> TrainingResult:
    """Train, and write the model of the best epoch (without dev: of the last epoch) to ``output/model``.

    The losses are a function of the seed; a resumed run has the losses of an uninterrupted one.

    Args:
        encoder: The bi-encoder; it is trained in place.
        examples: The training pairs.
        dev: Queries whose recall is measured after each epoch; None: no measurement.
        options: The options of the training.
        output: Folder for everything that the run writes.
        settings: Settings of the run beside ``options``; a resumed run must have the same.
        resume: Resume from the last checkpoint in ``output/checkpoints``.
        files: Fingerprints of the data, by file name; a resumed run must have the same.
        clock: Counts the steps and limits the time.

    Raises:
        ConfigError: There are no weights to train, no negatives or no checkpoint to resume, or loss, gradient
            or weights are not finite; an earlier model in the folder is intact.
        DataError: No dev query has a gold passage.
        MismatchError: The run to resume had other settings or other data.
        WriteError: The disk is full; earlier checkpoints are intact.
    """
    check_negatives(options, len(examples))
    if not any(weight.requires_grad for weight in encoder.model.parameters()):
        raise ConfigError(
            "the model has no weights to train (a bag of words, or frozen word embeddings): take another one."
        )
    folder, sharded = Path(output), options.strategy != "ddp"
    refuse_unwritable(folder / "checkpoints", folder=True)
    refuse_foreign(folder / "model", MODULES)
    texts = examples.passages()
    if cut := encoder.count_cut(texts):
        log.warning(
            encoder.cut_notice(cut, len(texts), f"{Option('max_tokens')!s} (of grls train biencoder)")
        )
    kept = {_SETTINGS: {**settings, **vars(options)}, _FILES: dict(files)}
    last = last_checkpoint(folder)
    if resume:
        if not last.exists():
            raise ConfigError(
                f"{last.parent} holds no checkpoint to resume from (one is written every epoch): leave out "
                f"{Option('resume')} to start anew."
            )
        check_checkpoint(str(last), shards=sharded, option="fit.strategy")
        _refuse_other_settings(
            folder, torch.load(last / META, weights_only=True) if sharded else read_checkpoint(last), kept
        )
    else:
        refuse_unfinished(str(folder), warn=False, model=MODULES)
    multistep = examples.options.multistep is True
    evaluator = None if dev is None else dev_evaluator(encoder, dev, options, multistep)
    steps = options.epochs * math.ceil(math.ceil(len(examples) / options.batch_size) / options.accumulate)
    steps = min(options.max_steps or steps, steps)
    device = torch.device("cpu") if options.device == "cpu" else accelerator()
    if options.precision == "bfloat16":
        warn_of_emulation(device, str(Option("precision", "float32", "auto")))
    low = has_bfloat16(device) if options.precision == "auto" else options.precision == "bfloat16"
    started = launched() or Launched(1, 1)
    strategy: Any = "auto" if started == (1, 1) else "ddp_find_unused_parameters_true"
    if sharded:
        strategy = FullyShard(cpu_offload="offload" in options.strategy)
    loggers: list[Any] = [CSVLogger(folder, name="logs")]
    if options.logger is not None:
        kind: Any = locate(options.logger)
        if not (isinstance(kind, type) and issubclass(kind, Logger)):
            raise ConfigError(f"fit.logger: {options.logger} is no logger of Lightning that is installed.")
        make: Any = kind
        loggers.append(make(save_dir=str(folder)))
    checkpoints: dict[str, Any] = {"dirpath": last.parent, "enable_version_counter": False}
    best = BestCheckpoint(
        **checkpoints, filename="best", monitor="dev_recall", mode="max", finer=("dev_ndcg", "max")
    )
    trainer = L.Trainer(
        max_epochs=options.epochs, accelerator=device.type, devices=started.devices,
        num_nodes=started.nodes, strategy=strategy, precision="bf16-mixed" if low else "32-true",
        gradient_clip_val=options.clip, accumulate_grad_batches=options.accumulate,
        use_distributed_sampler=False, inference_mode=not sharded, num_sanity_val_steps=0,
        limit_val_batches=0 if evaluator is None else 1, log_every_n_steps=options.log_every,
        callbacks=[
            GiveBackFreed(), RefuseNaN(RERANKER), TimeLimit(clock, steps),
            *([] if clock.meter else [TrainingLines()]), *([best] if evaluator else []),
            ModelCheckpoint(**checkpoints, filename="last"),
        ],
        plugins=[] if sharded else [AtomicCheckpointIO()], logger=loggers,
        enable_model_summary=False, enable_progress_bar=clock.meter is None,
    )  # fmt: skip
    module = BiEncoderModule(encoder, options, steps, evaluator, kept)
    data = BiEncoderData(examples, encoder, options)
    try:
        for logger in loggers:
            logger.log_hyperparams(kept[_SETTINGS])
        trainer.fit(
            module, datamodule=data, ckpt_path=str(last) if resume else None, weights_only=not sharded
        )
    except OSError as error:  # of the log: checkpoints have an error of their own
        if not is_write_failure(error):
            raise
        raise WriteError(f"cannot write under {folder} ({error}). Free disk space.") from error
    if best.best_model_path:
        place = last.parent / Path(best.best_model_path).name  # the folder may have been moved since
        try:
            if isinstance(trainer.strategy, FullyShard):
                trainer.strategy.load_weights(place)
            else:
                module.load_state_dict(read_checkpoint(place)["state_dict"])
        except ConfigError as error:
            log.warning("%s The model of the last step is written.", error)
    encoder.model = module.plain_model() or encoder.model
    if is_first() and spoiled(dict(encoder.model.named_parameters())) is not None:
        raise ConfigError(f"weights are not finite, so they are not kept: lower {RERANKER}.")
    encoder.stages = (*encoder.stages, STAGE)
    encoder.learned_done = examples.done
    by_first(lambda: encoder.save(folder / "model"))
    return TrainingResult(
        folder / "model", Path(trainer.log_dir or folder), f"recall@{options.k}",
        None if best.best_model_score is None else float(best.best_model_score),
        trainer.global_step, len(examples), clock.seconds, clock.time_is_up,
    )  # fmt: skip


def _refuse_other_settings(folder: Path, held: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other settings or other files.

    Raises:
        MismatchError: One has changed; the first is named.
    """
    before, now = held.get(_SETTINGS, {}), kept[_SETTINGS]
    for name in sorted(now.keys() - _FREE):
        if before.get(name) != now[name]:
            raise MismatchError(
                f"the run in {folder} had {name} {before.get(name)!r}, now it is {now[name]!r}: resume with "
                f"the same settings, or start anew without {Option('resume')}."
            )
    for name, fingerprint in kept[_FILES].items():
        if held.get(_FILES, {}).get(name) != fingerprint:
            raise MismatchError(
                f"{name} has changed since the run in {folder} began: put it back as it was, or start anew "
                f"without {Option('resume')} in another {Option('output')}."
            )
