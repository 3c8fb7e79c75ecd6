"""The trainer of sentence-transformers with the examples, batches, log and errors of grls.

It does not know what an example means. The best checkpoint is read in :mod:`grls.train.biencoder.fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerState
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grls.errors import ConfigError, Option, WriteError
from grls.io.files import is_write_failure
from grls.io.logs import without_weight_bars
from grls.models.biencoder import BiEncoderModel
from grls.models.sessions.attention import plain_attention
from grls.train.biencoder.callbacks import GiveBack, WriteLog
from grls.train.biencoder.collate import PairCollator
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.resume import STATE
from grls.train.biencoder.weights import TrainedWeights
from grls.train.core.batching import LengthBucketedSampler
from grls.train.core.clock import TrainingClock
from grls.train.core.damage import HASHES, write_hashes
from grls.train.core.finite import spoiled
from grls.train.core.lines import StepLines
from grls.train.core.processes import by_first
from grls.train.core.time_limit import StepLimit

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
        clock: Counts the steps and limits the time; its reports replace the lines; None: no limit.
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
        clock: TrainingClock | None = None,
    ):
        self.weights = weights
        self._clock = clock or TrainingClock("biencoder")
        quiet = self._clock.meter is not None
        self._lengths = examples.lengths()
        self._batch_size = batch_size
        self._length_pool = length_pool
        self._lines = StepLines()
        super().__init__(
            model=encoder.model,
            args=args,
            train_dataset=datasets.Dataset.from_dict({"number": range(len(examples))}),
            loss=loss,
            evaluator=evaluator,
            data_collator=PairCollator(encoder, examples),
            callbacks=[
                WriteLog(log, settings, shown=not quiet),
                StepLimit(self._clock),
                GiveBack(),
                *([] if quiet else [self._lines]),
            ],
        )
        self.remove_callback(PrinterCallback)

    def run(self, checkpoint: str | None = None) -> None:
        """Train, starting at a checkpoint if there is one; after the last step, only its weights are read.

        Raises:
            ConfigError: The loss is not finite.
            WriteError: A checkpoint cannot be written.
        """
        if checkpoint is not None and self._is_done(checkpoint):
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
            self._lines.close()

    def _is_done(self, checkpoint: str) -> bool:
        """Read a checkpoint of the last step; the library would train one more step within an epoch."""
        state = TrainerState.load_from_json(str(Path(checkpoint) / STATE))
        if state.global_step < self.args.max_steps:
            return False
        self.state = state
        self._load_from_checkpoint(checkpoint)
        return True

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
        with self._clock.measuring(), self.weights.whole():
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
        self.weights.save_adapters(str(output_dir))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        """The library's weights of a checkpoint, also into shards, or beside adapters."""
        if self.weights.within is None and not self.weights.adapted:
            super()._load_from_checkpoint(checkpoint_path)
            return
        read = None if self.weights.adapted else BiEncoderModel.load(checkpoint_path, device="cpu")
        self.weights.load(checkpoint_path, None if read is None else read.model.state_dict())

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """The library's states; those of a sharded run are whole."""
        if not self.weights.sharding:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        optimizer, schedule = cast(Any, self.optimizer), cast(Any, self.lr_scheduler)
        self.weights.save_optimizer(optimizer.optimizer, Path(output_dir) / OPTIMIZER_NAME)
        if self.args.should_save:
            torch.save(schedule.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """The library's states; those of a sharded run were written by any number of processes."""
        if not self.weights.sharding or checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        optimizer, schedule = cast(Any, self.optimizer), cast(Any, self.lr_scheduler)
        self.weights.load_optimizer(optimizer.optimizer, Path(checkpoint) / OPTIMIZER_NAME)
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
