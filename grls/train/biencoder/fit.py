"""Trains a bi-encoder with sentence-transformers, and keeps the epoch with the best dev recall.

A run writes into one folder: ``model/`` (for retrieval), ``logs.json`` (options, losses, dev recall) and
``checkpoints/`` (the library's checkpoints, for resuming; they hold pickles, so do not share them). Dev
recall is the library's exact evaluation over the whole corpus.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import Normalize

from grls.errors import ConfigError, Option
from grls.io.files import refuse_foreign, refuse_unwritable
from grls.models.biencoder import STAGE, BiEncoderModel
from grls.models.load.sentence_folder import MODULES, modules_of
from grls.models.precision import accelerator, has_bfloat16, warn_of_emulation
from grls.models.sentence_model import COSINE
from grls.train.biencoder.dev import Split, dev_evaluator, dev_metric
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.biencoder.options import BiEncoderOptions as BiEncoderOptions
from grls.train.biencoder.resume import FILES, LOGS, begin_anew, checkpoint_to_resume
from grls.train.biencoder.trainer import BiEncoderTrainer, refuse_broken
from grls.train.biencoder.weights import TrainedWeights
from grls.train.core.clock import TrainingClock
from grls.train.core.damage import folder_damage
from grls.train.core.processes import by_first

log = logging.getLogger(__name__)

_DEV = "dev"


class TrainedBiEncoder(NamedTuple):
    """What a training leaves.

    Attributes:
        model: The bi-encoder that was written.
        steps: Optimizer steps of the run.
        best: Dev recall of the best epoch; None: dev was not measured.
    """

    model: BiEncoderModel
    steps: int
    best: float | None


def check_negatives(batch_size: int, hard_negatives: int, examples: int | None = None) -> None:
    """Refuse a training without negatives.

    Raises:
        ConfigError: There is one example in a batch, or one in all, and no hard negatives.
    """
    if hard_negatives or (batch_size > 1 and examples != 1):
        return
    cause, remedy = "one training example", "add examples"
    if batch_size == 1:
        cause, remedy = "a batch_size of 1", "raise it"
    raise ConfigError(f"{cause} leaves no negatives: {remedy}, or set hard_negatives.")


def fit_biencoder(
    encoder: BiEncoderModel,
    examples: BiEncoderExamples,
    dev: Split | None,
    options: BiEncoderOptions,
    output: str | Path,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    files: Mapping[str, str] | None = None,
    clock: TrainingClock | None = None,
) -> TrainedBiEncoder:
    """Train, and write the model of the best epoch (without dev: of the last epoch) to ``output/model``.

    The losses are a function of the seed; a resumed run has the losses of an uninterrupted one.

    Args:
        encoder: The bi-encoder; it is trained in place.
        examples: The training pairs.
        dev: Queries whose recall is measured after each epoch; None: no measurement.
        options: The options of the training.
        output: Folder for everything that the run writes.
        settings: Settings of the run beside ``options``; they are logged, and a resumed run must have the
            same.
        resume: Resume from the last whole checkpoint in ``output/checkpoints``.
        files: Fingerprints of the data, by file name; they are logged, and a resumed run must have the same.
        clock: Counts the steps and limits the time; None: no limit.

    Raises:
        ConfigError: There are no weights to train, no negatives or no checkpoint to resume, or loss or
            weights are not finite; an
            earlier model in the folder is intact.
        DataError: No dev query has a gold passage.
        MismatchError: The run to resume had other settings or other data.
        WriteError: The disk is full; earlier checkpoints are intact.
    """
    check_negatives(options.batch_size, options.hard_negatives, len(examples))
    if not any(weight.requires_grad for weight in encoder.model.parameters()):
        raise ConfigError(
            "the model has no weights to train (a bag of words, or frozen word embeddings): take another one."
        )
    folder = Path(output)
    refuse_unwritable(folder / "checkpoints", folder=True)
    refuse_foreign(folder / "model", MODULES)
    texts = examples.passages()
    if cut := encoder.count_cut(texts):
        log.warning(
            encoder.cut_notice(cut, len(texts), f"{Option('max_tokens')!s} (of grls train biencoder)")
        )
    known = {**(settings or {}), **vars(options), FILES: dict(files or {})}
    evaluator = (
        None if dev is None else dev_evaluator(encoder, dev, options, examples.options.multistep is True)
    )
    args = _arguments(options, folder, dev is not None, _steps(options, len(examples)))  # joins the processes
    start = by_first(lambda: checkpoint_to_resume(folder, known) if resume else begin_anew(folder))
    if options.gradient_checkpointing:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    weights = TrainedWeights(encoder.model, options.strategy, options.lora_rank, options.lora_dropout)
    weights.shard(args.device, bool(args.bf16))
    trainer = BiEncoderTrainer(
        encoder,
        weights,
        examples,
        loss=MaskedRankingLoss(encoder.model, scale=_scale(encoder, options), similarity_fct=encoder.scores),
        args=args,
        batch_size=options.batch_size,
        length_pool=options.length_pool,
        evaluator=evaluator,
        log=folder / LOGS,
        settings=known,
        clock=clock,
    )
    trainer.run(start)
    trained = _best(trainer, encoder, folder / "checkpoints")
    refuse_broken(trained.model, trainer.state.global_step)
    trained.stages = (*encoder.stages, STAGE)
    trained.learned_done = examples.done
    trained.evidence_words = encoder.evidence_words
    by_first(lambda: trained.save(folder / "model"))
    return TrainedBiEncoder(trained, trainer.state.global_step, trainer.state.best_metric)


def _best(trainer: BiEncoderTrainer, encoder: BiEncoderModel, checkpoints: Path) -> BiEncoderModel:
    """The model of the best epoch; that of the last step where there is none, or none that can be read."""
    best = trainer.state.best_model_checkpoint
    if best is None:
        return _last(trainer, encoder)
    place = checkpoints / Path(best).name  # the folder may have been moved before the run was resumed
    damage = folder_damage(place) if place.is_dir() else "it is gone"
    if damage is not None:
        log.warning(
            "the best checkpoint %s cannot be read (%s), so the model of the last step is written.",
            place,
            damage,
        )
        return _last(trainer, encoder)
    return BiEncoderModel.load(str(place), device="cpu", max_tokens=encoder.max_tokens)


def _last(trainer: BiEncoderTrainer, encoder: BiEncoderModel) -> BiEncoderModel:
    """The model of the last step; other processes than the first of a sharded run have no use for it."""
    encoder.model = trainer.weights.plain() or encoder.model
    return encoder


def _scale(encoder: BiEncoderModel, options: BiEncoderOptions) -> float:
    if options.scale is not None:
        return options.scale
    normalised = any(isinstance(module, Normalize) for module in modules_of(encoder.model))
    unit = encoder.similarity == COSINE or normalised
    return 20.0 if unit else 1.0


def _steps(options: BiEncoderOptions, examples: int) -> int:
    """Number of optimizer steps of the whole training."""
    steps = options.epochs * math.ceil(math.ceil(examples / options.batch_size) / options.accumulate)
    return steps if options.max_steps is None else min(options.max_steps, steps)


def _arguments(
    options: BiEncoderOptions, folder: Path, dev: bool, steps: int
) -> SentenceTransformerTrainingArguments:
    device = torch.device("cpu") if options.device == "cpu" else accelerator()
    if options.precision == "bfloat16":
        warn_of_emulation(device, str(Option("precision", "float32", "auto")))
    mixed = has_bfloat16(device) if options.precision == "auto" else options.precision == "bfloat16"
    made = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=options.epochs,
        max_steps=steps,
        per_device_train_batch_size=options.batch_size,  # the trainer shares it out
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.learning_rate,
        lr_scheduler_type="linear" if options.schedule == "linear" else "constant_with_warmup",
        warmup_steps=options.warmup,
        weight_decay=options.weight_decay,
        optim="adafactor" if options.optimizer == "adafactor" else "adamw_torch",
        max_grad_norm=options.clip,
        bf16=mixed,
        use_cpu=device.type == "cpu",  # needed even without a GPU, else the library refuses bfloat16
        seed=options.seed,
        logging_steps=options.log_every,
        logging_nan_inf_filter=False,
        eval_strategy="epoch" if dev else "no",
        metric_for_best_model=f"eval_{dev_metric(options.k)}" if dev else None,
        greater_is_better=True if dev else None,
        save_strategy="epoch",
        save_total_limit=2,  # the best and the last
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available() and options.device != "cpu",
    )
    # With several GPUs the library would multiply the batch, and each GPU would have only its own negatives.
    # One GPU is the first one.
    made._n_gpu = min(made.n_gpu, 1)
    return made
