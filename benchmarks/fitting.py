"""Two ways to train the same model on the same hops, with one clock, for ``benchmarks.train``.

``fit_plain`` is the plain recipe: transformers' ``Seq2SeqTrainer`` (``Trainer`` for a causal model) over
(source, target) pairs, hop by hop, whole targets, the loss over the vocabulary, batches of mixed lengths.
``fit_ours`` is this package's training through Lightning. Both start with the weights of one folder, and use
AdamW with a constant rate, gradients clipped to a norm of 1, and the same number of hops a batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import lightning as L
import torch
from torch.utils.data import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.watching import Meter, Watch
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.index.build import build_index
from grls.models.load.generators import CausalLM, GeneratorSpec, Pretrained
from grls.train.generator.data import RetrieveData
from grls.train.generator.examples import Hops, RetrieveExamples
from grls.train.generator.module import Retrieve
from grls.train.options import ChainModelOptions, RetrieveDataOptions, RetrieveModelOptions

IGNORED = -100
"""The label of a position without a loss, in transformers."""
_FOREVER = 10**9
"""Number of steps without an end: a watch ends the run."""


class Recipe(NamedTuple):
    """Settings of both sides.

    Attributes:
        data: Data set folder.
        start: Folder of the model to start from.
        causal: Whether it is a causal language model.
        batch_size: Hops a batch.
        learning_rate: AdamW's learning rate.
        freeze_encoder: Train only the decoder.
        freeze_embeddings: Do not train the word embeddings.
        seed: Seed of the order of examples and of dropout.
    """

    data: str
    start: str
    causal: bool
    batch_size: int = 32
    learning_rate: float = 1e-3
    freeze_encoder: bool = False
    freeze_embeddings: bool = False
    seed: int = 0

    @property
    def generator(self) -> GeneratorSpec:
        """The model to start from."""
        return CausalLM(self.start) if self.causal else Pretrained(self.start)


class Fast(NamedTuple):
    """Settings of our side only."""

    precision: Any = "32-true"
    length_pool: int = 50


class Pairs(Dataset[dict[str, list[int]]]):
    """(source, target) pairs in the form of transformers, counted when they are drawn.

    A causal model reads the target behind the source, and has no loss on the source. ``targets`` returns the
    tokens of a passage's whole sequence, by its number.
    """

    def __init__(self, examples: RetrieveExamples, targets: Any, causal: bool, meter: Meter):
        self.examples = examples
        self.targets = targets
        self.causal = causal
        self.meter = meter

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        (hop,) = self.examples.draw(number, 0)
        source, target = hop.source, self.targets(hop.taken).tolist()
        self.meter.add(len(source), len(target))
        ids, labels = source, target
        if self.causal:
            ids, labels = [*source, *target], [IGNORED] * len(source) + target
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


class _Ending(TrainerCallback):
    """Lets a watch end transformers' training."""

    def __init__(self, watch: Watch, model: Any):
        self.watch = watch
        self.model = model

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.watch.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = self.watch.step(self.model)


def fit_plain(recipe: Recipe, watch: Watch, meter: Meter, bf16: bool = False) -> None:
    """Train with transformers' trainer until the watch ends it."""
    model, tokenizer = recipe.generator.load()
    _freeze(model, recipe)
    corpus = Corpus.read(recipe.data)
    codec = Codec(tokenizer, causal=recipe.causal)
    examples = RetrieveExamples(*read_split(recipe.data, "train", corpus), corpus, codec, together=False)
    targets = build_index(corpus, codec).tokens
    kind, options = (
        (Trainer, TrainingArguments) if recipe.causal else (Seq2SeqTrainer, Seq2SeqTrainingArguments)
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=model,
            args=options(
                output_dir=folder, per_device_train_batch_size=recipe.batch_size, max_steps=_FOREVER,
                learning_rate=recipe.learning_rate, lr_scheduler_type="constant", max_grad_norm=1.0,
                bf16=bf16, seed=recipe.seed, save_strategy="no", logging_strategy="no", report_to="none",
                disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available(),
            ),
            train_dataset=Pairs(examples, targets, recipe.causal, meter),
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=None if recipe.causal else model),
            callbacks=[_Ending(watch, model)],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _freeze(model: Any, recipe: Recipe) -> None:
    parts = [model.get_encoder()] if recipe.freeze_encoder else []
    parts += [model.get_input_embeddings()] if recipe.freeze_embeddings else []
    for part in parts:
        part.requires_grad_(False)


class Counted:
    """Hops that are counted when they are drawn.

    ``targets`` returns the tokens of a passage's whole sequence, by its number.
    """

    def __init__(self, examples: Any, meter: Meter, targets: Any):
        self.examples = examples
        self.meter = meter
        self.targets = targets

    def __len__(self) -> int:
        return len(self.examples)

    def draw(self, number: int, epoch: int) -> Any:  # noqa: D102
        drawn: Hops = self.examples.draw(number, epoch)
        for hop in drawn:
            self.meter.add(len(hop.source), len(self.targets(hop.taken)))
        return drawn

    def lengths(self) -> Sequence[int]:  # noqa: D102
        lengths: Sequence[int] = self.examples.lengths()
        return lengths


class _Watched(L.Callback):
    """Counts examples, and lets a watch end Lightning's training."""

    def __init__(self, watch: Watch, meter: Meter):
        self.watch = watch
        self.meter = meter

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        data = trainer.datamodule
        data.train_examples = Counted(data.train_examples, self.meter, data.index.tokens)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        trainer.should_stop = self.watch.step(pl_module.model)


def fit_ours(recipe: Recipe, watch: Watch, meter: Meter, fast: Fast) -> None:
    """Train with this package until the watch ends it.

    A sequence-to-sequence model learns single hops (``Retrieve``), a causal model all hops of a query as one
    tree (``together``); its batches hold as many queries as give about the rival's number of hops.
    """
    options: dict[str, Any] = {
        "optimizer": "adamw", "learning_rate": recipe.learning_rate, "schedule": "constant", "warmup": 0.0,
        "loss": "allowed", "generator": recipe.generator,
    }  # fmt: skip
    if recipe.causal:
        options["freeze_embeddings"] = recipe.freeze_embeddings
        module = Retrieve(ChainModelOptions(**options), together=True, seed=recipe.seed)
    else:
        model = RetrieveModelOptions(**options, freeze_encoder=recipe.freeze_encoder)
        module = Retrieve(model, seed=recipe.seed)
        _freeze(module.model, recipe)
    size = _queries(recipe) if recipe.causal else recipe.batch_size
    data = RetrieveData(
        RetrieveDataOptions(data=recipe.data, batch_size=size, length_pool=fast.length_pool), recipe.seed
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            devices=1, precision=fast.precision, max_epochs=-1, gradient_clip_val=1.0, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            limit_val_batches=0, callbacks=[_Watched(watch, meter)], default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(module, datamodule=data)


def _queries(recipe: Recipe) -> int:
    """Number of queries with about as many hops as a batch."""
    corpus = Corpus.read(recipe.data)
    tokenizer = recipe.generator.load().tokenizer
    queries, qrels = read_split(recipe.data, "train", corpus)
    examples = RetrieveExamples(
        queries, qrels, corpus, Codec(tokenizer, causal=recipe.causal), together=False
    )
    return max(1, round(recipe.batch_size * len(queries) / len(examples)))
