"""The trainer of sentence-transformers with the examples, batches, log and errors of grls.

It does not know what an example means.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import datasets
import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback, TrainerState
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grls.errors import ConfigError, DataError, MismatchError, Option, WriteError
from grls.io.ending import without_weight_bars
from grls.io.files import is_write_failure, read_json, refuse_foreign, refuse_unwritable, write_json
from grls.io.progress import Progress
from grls.models.biencoder import STAGE, BiEncoderModel
from grls.models.load.sentence_folder import MODULES, modules_of
from grls.models.lora import add_adapters, merge_adapters
from grls.models.precision import accelerator, has_bfloat16, warn_of_emulation
from grls.models.sentence_model import COSINE
from grls.models.sessions.memory import plain_attention
from grls.train.biencoder.collate import PairCollator
from grls.train.biencoder.dev import Split, dev_evaluator, dev_metric
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.biencoder.options import BiEncoderOptions as BiEncoderOptions
from grls.train.core.clock import TrainingClock
from grls.train.core.damage import HASHES, folder_damage, write_hashes
from grls.train.core.datamodule import LengthBucketedSampler
from grls.train.core.finite import spoiled
from grls.train.core.lines import step_progress
from grls.train.core.malloc_trim import SmallHeap
from grls.train.core.processes import (
    Within,
    by_first,
    gathered_weights,
    is_first,
    layers_of,
    processes,
    shard_model,
    whole_weights,
)
from grls.train.result import TrainingResult

log = logging.getLogger(__name__)


_REMEDY = "lower the learning rate or the scale, or compute in float32."


def refuse_broken(model: nn.Module, step: int) -> None:
    """Refuse weights that are not finite, after a step whose loss was finite.

    Raises:
        ConfigError: A weight is not finite.
    """
    if spoiled(dict(model.named_parameters())) is not None:
        raise ConfigError(f"weights are not finite after step {step}, so they are not kept: {_REMEDY}")


class BiEncoderTrainer(SentenceTransformerTrainer):
    """The library's trainer over :class:`~grls.train.biencoder.examples.BiEncoderExamples`.

    Args:
        encoder: The bi-encoder; it is trained in place.
        weights: Its weights, whole or in shards.
        examples: The training pairs.
        loss: The loss of embeddings and labels; labels are n keys and G gold keys for each example.
        args: The settings of the library.
        batch_size: Examples of a batch of all processes together.
        length_pool: Batches that are sorted by length together.
        evaluator: Measures the encoder after each epoch.
        log: JSON file for settings, losses and measures.
        settings: The settings of the run, for the log.
        clock: Counts the steps and limits the time; its reports replace the lines.
    """

    def __init__(
        self,
        encoder: BiEncoderModel,
        weights: TrainedWeights,
        examples: BiEncoderExamples,
        loss: nn.Module,
        args: SentenceTransformerTrainingArguments,
        batch_size: int,
        length_pool: int,
        evaluator: Any | None,
        log: Path,
        settings: Mapping[str, Any],
        clock: TrainingClock,
    ):
        self.weights = weights
        self._clock = clock
        self._lengths = examples.lengths()
        self._batch_size = batch_size
        self._length_pool = length_pool
        self._follow = FollowSteps(log, settings, self._clock)
        super().__init__(
            model=encoder.model,
            args=args,
            train_dataset=datasets.Dataset.from_dict({"number": range(len(examples))}),
            loss=loss,
            evaluator=evaluator,
            data_collator=PairCollator(encoder, examples),
            callbacks=[self._follow],
        )
        self.remove_callback(PrinterCallback)

    def run(self, checkpoint: str | None = None) -> None:
        """Train, starting at a checkpoint if there is one; after the last step, only its weights are read.

        Raises:
            ConfigError: The loss is not finite.
            WriteError: A checkpoint cannot be written.
        """
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(checkpoint) / STATE))
            if state.global_step >= self.args.max_steps:  # the library would train one more step of an epoch
                self.state = state
                self._load_from_checkpoint(checkpoint)
                return
        try:
            self.train(resume_from_checkpoint=checkpoint)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not is_write_failure(error):
                raise
            raise WriteError(
                f"cannot write under {Path(str(self.args.output_dir)).parent} "
                f"({str(error).splitlines()[0]}); earlier checkpoints are intact. Free disk space, then "
                f"resume with {Option('resume', True)}."
            ) from error
        finally:
            self._follow.close()

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The library's loss, checked at every step and not only at logged steps.

        Raises:
            ConfigError: The loss is not finite.
        """
        lengths = [value.shape[-1] for name, value in inputs.items() if name.endswith("_input_ids")]
        longest = max(lengths, default=0)
        whole: Any = super().compute_loss
        work, within = partial(whole, **kwargs), self.weights.within
        with plain_attention(model, longest):
            loss: Any = (
                work(model, inputs, *args) if within is None else within(work, self.model, inputs, *args)
            )
        # Checked before the backward pass, so that a GPU has work while the next batch is made.
        if not bool(torch.isfinite(loss)):
            refuse_broken(model, self.state.global_step)
            raise ConfigError(f"the loss is {loss.item()} at step {self.state.global_step + 1}: {_REMEDY}")
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The library's evaluation, after a check of the weights.

        Raises:
            ConfigError: A weight is not finite.
        """
        refuse_broken(self.model, self.state.global_step)
        with self._clock.measuring(), whole_weights(self.weights.model, self.weights.within):
            measures: dict[str, float] = super().evaluate(*args, **kwargs)
        return measures

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """The library's choice; among epochs of equal recall, the one with the highest nDCG is the best."""
        name = str(self.args.metric_for_best_model)
        if super()._determine_best_metric(metrics, trial):
            return True
        finer, best = name.replace("recall@", "ndcg@"), self.state.best_global_step
        before = [
            entry[finer] for entry in self.state.log_history if entry["step"] == best and finer in entry
        ]
        level = bool(before) and metrics[name] == self.state.best_metric and metrics[finer] > before[-1]
        if level:
            self.state.best_global_step = self.state.global_step
        return level

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The library's checkpoint, after a check of the weights, with the hashes of its files."""
        refuse_broken(self.model, self.state.global_step)
        folder = Path(str(self.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        by_first(lambda: (folder / HASHES).unlink(missing_ok=True))
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        by_first(lambda: write_hashes(folder))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write a plain model, and its adapters beside it."""
        plain, trained = self.weights.plain(), self.model
        try:
            self.model = plain or trained
            with without_weight_bars():
                super().save_model(output_dir, _internal_call)
        finally:
            self.model = trained
        if self.weights.adapted:  # all processes gather them
            within, model = self.weights.within, self.weights.model
            weights = model.state_dict() if within is None else gathered_weights(model)
            adapters = {name: value.contiguous() for name, value in weights.items() if "lora_" in name}
            if is_first():
                save_file(adapters, Path(str(output_dir)) / ADAPTERS)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        """The library's weights of a checkpoint, also into shards, or beside adapters."""
        if self.weights.within is None and not self.weights.adapted:
            super()._load_from_checkpoint(checkpoint_path)
            return
        known: Any
        if self.weights.adapted:
            known = load_file(Path(checkpoint_path) / ADAPTERS)
        else:
            known = BiEncoderModel.load(checkpoint_path, device="cpu").model.state_dict()
        options = StateDictOptions(full_state_dict=True, strict=not self.weights.adapted)
        set_model_state_dict(self.weights.model, known, options=options)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """The library's states; those of a sharded run are whole, by names of weights."""
        if not self.weights.sharding:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        optimizer, schedule = cast(Any, self.optimizer), cast(Any, self.lr_scheduler)
        states = get_optimizer_state_dict(self.weights.model, optimizer.optimizer, options=_WHOLE)
        if is_first():
            torch.save(states, Path(output_dir) / OPTIMIZER_NAME)
        if self.args.should_save:
            torch.save(schedule.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """The library's states; those of a sharded run were written by any number of processes."""
        if not self.weights.sharding or checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        optimizer, schedule = cast(Any, self.optimizer), cast(Any, self.lr_scheduler)
        states = torch.load(Path(checkpoint) / OPTIMIZER_NAME, map_location="cpu", weights_only=True)
        options = StateDictOptions(full_state_dict=True, strict=False)  # a part may have no gradient
        set_optimizer_state_dict(self.weights.model, optimizer.optimizer, states, options=options)
        schedule.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER_NAME, weights_only=True))

    def _move_model_to_device(self, model: Any, device: Any) -> None:
        """Shards are where they belong."""
        if self.weights.within is None:
            super()._move_model_to_device(model, device)

    def _wrap_model(self, model: Any, training: bool = True, dataloader: Any = None) -> Any:
        """A sharded model is wrapped in no other way."""
        if self.weights.within is not None:
            return self.weights.within
        return super()._wrap_model(model, training, dataloader)

    def _clip_grad_norm(self, model: Any) -> Any:
        """The norm of the whole gradient."""
        norm = super()._clip_grad_norm(model)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no model card: it would quote the training data."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of this process: the library would share out whole batches, not each of them."""
        built = self._build_dataloader(self.train_dataset, self.args.train_batch_size, dataset_kind="train")
        loader: DataLoader[Any] = prepare_data_loader(
            built, self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )
        self._train_dataloader = loader
        return loader

    def get_batch_sampler(self, dataset: Any, batch_size: int, *args: Any, **kwargs: Any) -> EpochBatches:
        """The length-bucketed batches of all trainings here; this process has its share of each."""
        source = LengthBucketedSampler(
            self._lengths,
            self._batch_size,
            self.args.seed,
            rank=self.args.process_index,
            ranks=self.args.world_size,
            pool=self._length_pool,
        )
        collator = self.data_collator
        assert isinstance(collator, PairCollator)
        return EpochBatches(collator, source, dataset)


class EpochBatches(DefaultBatchSampler):
    """The length-bucketed sampler with the library's interface; it sets the epoch of the collator.

    Args:
        collator: Draws the examples.
        source: Orders the examples.
        dataset: The data set whose rows are the numbers of the examples.
    """

    def __init__(self, collator: PairCollator, source: LengthBucketedSampler, dataset: Any):
        super().__init__(dataset, batch_size=source.batch_size, drop_last=False, seed=source.seed)
        self.collator = collator
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[list[int]]:
        self.collator.epoch = self.epoch
        self.source.resume(self.epoch, 0)
        for batch in self.source:
            yield [number for number, _ in batch]


# The log of a training: losses, and recall on dev after each epoch; its steps, time and memory.


class FollowSteps(TrainerCallback):
    """Prints steps, losses and dev recall, writes them to a JSON file, and ends the training in time.

    On a CPU it keeps the heap small, too.

    Args:
        file: The file.
        settings: The settings of the run, which are written as well.
        clock: Counts the steps and limits the time; where it reports them, nothing is printed.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], clock: TrainingClock):
        self.file = file
        self.settings = dict(settings)
        self._clock = clock
        self._heap = SmallHeap()
        self._progress: Progress | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the settings, with which those of a resumed run are compared, and start the count."""
        self._write(state)
        self._clock.start(state.global_step, state.max_steps)
        if self._clock.meter is None:
            progress = step_progress(state.max_steps, state.global_step, state.is_world_process_zero)
            self._progress = progress.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step; print a line if it is due; return memory, when its tensors are free."""
        if self._clock.stepped(state.global_step):  # dev is measured and saved at the end of every training
            control.should_training_stop = True
        if args.device.type == "cpu":
            self._heap()

        def note() -> str:
            losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
            return f"epoch {state.epoch:.2f}" + (f", loss {losses[-1]:.4f}" if losses else "")

        if self._progress is not None:
            self._progress.update(state.global_step - self._progress.done, note)

    def close(self) -> None:
        """Close the line of progress."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print a line."""
        values = [f"{name} {value:.4f}" for name, value in _measures(kwargs["logs"]).items()]
        if values and self._clock.meter is None and state.is_world_process_zero:
            print(
                f"epoch {state.epoch:.2f}, step {state.global_step}/{state.max_steps}: {', '.join(values)}",
                flush=True,
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the losses and measures so far."""
        self._write(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the whole log."""
        self._write(state)

    def _write(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        history = [
            {"step": entry["step"], "epoch": entry["epoch"], **_measures(entry)}
            for entry in state.log_history
            if _measures(entry)
        ]
        write_json(self.file, {"settings": self.settings, "history": history})


def _measures(logs: Mapping[str, Any]) -> dict[str, float]:
    """The loss, and dev recall under a short name."""
    named = {
        name if name == "loss" else f"dev_{name.rpartition('_')[2]}": value for name, value in logs.items()
    }
    return {name: value for name, value in named.items() if name == "loss" or "recall@" in name}


# The weights of a bi-encoder in training: whole or in shards (FSDP2), all of them or adapters (LoRA).
#
# accelerate, on which the trainer of sentence-transformers is built, shards models on GPUs only, and its
# checkpoints hold no plain model. So the model is sharded here, before the trainer makes its optimizer, and a
# checkpoint holds whole weights and whole states of the optimizer: a run resumes from it on any number of
# processes. Each process has its shards alone, but for one layer at a time; a checkpoint is gathered in main
# memory of the first process.


Strategy = Literal["ddp", "fsdp", "fsdp_cpu_offload"]

ADAPTERS = "adapters.safetensors"
"""The file of a checkpoint with the adapters alone; the model beside it has them merged."""
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class TrainedWeights:
    """A model whose weights are trained.

    Args:
        model: The network; it is sharded in place.
        strategy: Whole weights in each process (``ddp``), or shards.
        lora_rank: Rank of the adapters, which are added in place; 0: all weights are trained.
        lora_dropout: Dropout of the adapters' inputs.

    Raises:
        ConfigError: The model has no layers to shard, or no network that adapters can be added to.
    """

    def __init__(self, model: Any, strategy: Strategy, lora_rank: int, lora_dropout: float):
        self.model = model
        self.strategy = strategy
        self.adapted = lora_rank > 0
        self.within: Within | None = None
        self._plain: Any = None
        if self.adapted:
            network = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
            if network is None:
                raise ConfigError(
                    "lora_rank: the model has no network of transformers to add adapters to: set it to 0."
                )
            add_adapters(network, lora_rank, lora_dropout)
        if strategy != "ddp":
            layers_of(model)

    @property
    def sharding(self) -> bool:
        """Whether the strategy shards, be it for one process."""
        return self.strategy != "ddp"

    def shard(self, device: torch.device, low: bool) -> None:
        """Shard the model over the processes, if there are several and the strategy does.

        Args:
            device: Where this process computes.
            low: Compute in bfloat16.
        """
        if not self.sharding or processes() == 1:
            return
        if is_first():
            self._plain = deepcopy(self.model)
            self._plain.model_card_data.model = self._plain  # else the card of a copy is that of the shards
        mesh = init_device_mesh(device.type, (processes(),))
        offload = self.strategy == "fsdp_cpu_offload" and device.type != "cpu"
        self.within = shard_model(self.model, mesh, low, offload)

    def plain(self) -> Any:
        """The model to save, with whole weights and adapters merged; None on other processes than the first.

        All processes of a sharded run must call it.
        """
        model = self.model
        if self.within is not None:
            weights = gathered_weights(self.model)
            if self._plain is None:
                return None
            model = self._plain
            model.load_state_dict(weights)
        if self.adapted:
            model = deepcopy(model)
            merge_adapters(model)
        return model


# The start of training a bi-encoder: a new run, or the last checkpoint that is whole and undamaged.
#
# Wherever a run dies, one of the two works, and the error of the other one names it. The module knows the
# files of a checkpoint, not their content.


LOGS = "logs.json"
STATE = "trainer_state.json"
"""The last file that the trainer writes into a checkpoint; a checkpoint with this file is whole."""

FILES = "fingerprints"
"""Key of the data's fingerprints in the settings."""

_FREE = {"device", "log_every", "gradient_checkpointing"}
"""Settings that a resumed run may change, since they do not change the losses."""


def refuse_unfinished_run(folder: Path) -> None:
    """Refuse a new run where another one has not finished.

    Raises:
        ConfigError: There are checkpoints of a run that has not finished.
    """
    model = folder / "model" / MODULES
    finished = model.stat().st_mtime if model.is_file() else 0.0
    if any(checkpoint.stat().st_mtime > finished for checkpoint in _whole(folder)):
        raise ConfigError(
            f"{folder / 'checkpoints'} holds checkpoints of a run that did not finish: resume it with "
            f"{Option('resume', True)}, choose another {Option('output')}, or remove the checkpoints."
        )


def _all(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").glob("checkpoint-*"))


def _whole(folder: Path) -> list[Path]:
    """The complete checkpoints, the last one first."""
    whole = [checkpoint for checkpoint in _all(folder) if (checkpoint / STATE).is_file()]
    return sorted(whole, key=lambda path: -int(path.name.rpartition("-")[2]))


def checkpoint_to_resume(folder: Path, settings: Mapping[str, Any]) -> str:
    """The last undamaged checkpoint of the run with these settings; later checkpoints are removed.

    Raises:
        ConfigError: There is no checkpoint, or all are damaged.
        MismatchError: A setting or a file has changed.
        DataError: The log of the run is damaged.
    """
    if not _whole(folder):
        raise ConfigError(
            f"{folder / 'checkpoints'} holds no checkpoint to resume from (one is written every epoch): "
            f"leave out {Option('resume')} to start anew."
        )
    logged = read_json(folder / LOGS)
    before = logged.get("settings") if isinstance(logged, dict) else None
    if not isinstance(before, dict):
        raise DataError(
            f"the log holds no settings of a run: start anew in another {Option('output')}.", folder / LOGS
        )
    checked = settings.keys() - _FREE - {FILES}
    for name in sorted(name for name in checked if before.get(name) != settings[name]):
        raise MismatchError(
            f"the run in {folder} had {name} {before.get(name)!r}, now it is {settings[name]!r}: resume "
            f"with the same settings, or start anew without {Option('resume')}."
        )
    known = before.get(FILES, {})
    for name in (name for name, now in settings[FILES].items() if known.get(name) != now):
        raise MismatchError(
            f"{name} has changed since the run in {folder} began: put it back as it was, or start anew "
            f"without {Option('resume')} in another {Option('output')}."
        )
    damaged: list[tuple[Path, str]] = []
    for chosen in _whole(folder):
        what = folder_damage(chosen)
        if what is None:
            break
        damaged.append((chosen, what))
    else:
        raise ConfigError(
            f"{damaged[0][0]} is damaged ({damaged[0][1]}), and no other checkpoint is whole: remove "
            f"{folder / 'checkpoints'} and start anew without {Option('resume')}."
        )
    for pair in damaged:
        log.warning("%s is damaged (%s): the run resumes from %s.", *pair, chosen)
    for checkpoint in _all(folder):
        if int(checkpoint.name.rpartition("-")[2]) > int(chosen.name.rpartition("-")[2]):
            shutil.rmtree(checkpoint)
    return str(chosen)


# Trains a bi-encoder with sentence-transformers, and keeps the epoch with the best dev recall.
#
# A run writes into one folder: ``model/`` (for retrieval), ``logs.json`` (options, losses, dev recall) and
# ``checkpoints/`` (the library's checkpoints, for resuming; they hold pickles, so do not share them). Dev
# recall is the library's exact evaluation over the whole corpus.


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
        settings: Settings of the run beside ``options``; they are logged, and a resumed run must have the
            same.
        resume: Resume from the last whole checkpoint in ``output/checkpoints``.
        files: Fingerprints of the data, by file name; they are logged, and a resumed run must have the same.
        clock: Counts the steps and limits the time.

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
    known = {**settings, **vars(options), FILES: dict(files)}
    evaluator = (
        None if dev is None else dev_evaluator(encoder, dev, options, examples.options.multistep is True)
    )
    steps = options.epochs * math.ceil(math.ceil(len(examples) / options.batch_size) / options.accumulate)
    if options.max_steps is not None:
        steps = min(options.max_steps, steps)
    args = _arguments(options, folder, dev is not None, steps)  # joins the processes

    def begin() -> str | None:
        if resume:
            return checkpoint_to_resume(folder, known)
        refuse_unfinished_run(folder)
        for checkpoint in _all(folder):  # of a finished run, or an incomplete one of a run that was killed
            shutil.rmtree(checkpoint)
        return None

    start = by_first(begin)
    if options.gradient_checkpointing:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    weights = TrainedWeights(encoder.model, options.strategy, options.lora_rank, options.lora_dropout)
    weights.shard(args.device, bool(args.bf16))
    scale = options.scale
    if scale is None:
        normalised = any(isinstance(module, Normalize) for module in modules_of(encoder.model))
        scale = 20.0 if encoder.similarity == COSINE or normalised else 1.0
    trainer = BiEncoderTrainer(
        encoder,
        weights,
        examples,
        loss=MaskedRankingLoss(encoder.model, scale=scale, similarity_fct=encoder.scores),
        args=args,
        batch_size=options.batch_size,
        length_pool=options.length_pool,
        evaluator=evaluator,
        log=folder / LOGS,
        settings=known,
        clock=clock,
    )
    trainer.run(start)
    trained = None
    if (best := trainer.state.best_model_checkpoint) is not None:
        # The folder may have been moved before the run was resumed.
        place = folder / "checkpoints" / Path(best).name
        damage = folder_damage(place) if place.is_dir() else "it is gone"
        if damage is None:
            trained = BiEncoderModel.load(str(place), device="cpu", max_tokens=encoder.max_tokens)
        else:
            log.warning(
                "the best checkpoint %s cannot be read (%s), so the model of the last step is written.",
                place,
                damage,
            )
    if trained is None:  # other processes than the first of a sharded run have no use for it
        encoder.model = trainer.weights.plain() or encoder.model
        trained = encoder
    refuse_broken(trained.model, trainer.state.global_step)
    trained.stages = (*encoder.stages, STAGE)
    trained.learned_done = examples.done
    trained.evidence_words = encoder.evidence_words
    by_first(lambda: trained.save(folder / "model"))
    return TrainingResult(
        folder / "model", folder / LOGS, f"recall@{options.k}", trainer.state.best_metric,
        trainer.state.global_step, len(examples), clock.seconds, clock.time_is_up,
    )  # fmt: skip


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
