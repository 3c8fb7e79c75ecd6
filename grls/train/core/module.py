"""The bases of all LightningModules: of any model, of encoders, and of generators with their two losses.

Legend: b inputs, s longest input, t longest target, N states of the model, d model width, L labels, D
decisions, A allowed tokens of all of them together, U distinct allowed tokens.

A state of the model is the input of its head at one token that it reads. There it predicts the next token:
one of the vocabulary (a label), or one of those that an index allows (a decision).

The loss ``full`` is cross-entropy over the vocabulary, as in the paper (arXiv 2204.13596); ``allowed`` is
that over the tokens that the constraint index allows, the distribution of ``renormalized`` scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, get_constant_schedule_with_warmup, get_linear_schedule_with_warmup
from transformers.optimization import Adafactor

from grls.data.codec import CLOSING_MARKERS, reset_tokenizer
from grls.data.identifiers import FOLDER, IdentifierKind, read_kind
from grls.errors import ConfigError, MismatchError, Option
from grls.io.files import atomic_folder, write_json
from grls.models.base import check_positions, is_causal
from grls.models.head import Head
from grls.models.load.build import BESIDE, TRAINING, Loaded, add_markers, add_rows, is_four_bit
from grls.models.load.generators import GeneratorSpec
from grls.models.load.opening import write_network
from grls.models.lora import add_adapters, merge_adapters
from grls.train.core.processes import (
    FullyShard,
    Within,
    averaged,
    gathered_weights,
    is_first,
    mean_over_processes,
    summed,
    whole_weights,
)
from grls.train.options import EncoderOptions, ModelOptions

_FUSED = ("cpu", "cuda")
"""Devices with a fused AdamW kernel."""


class TrainingModule(L.LightningModule):
    """A model in training, whole or in shards.

    Dropout is a function of (seed, batch number, rank): a resumed run repeats an uninterrupted one.
    """

    model: Any
    settings: Mapping[str, Any] = {}
    """The options of the run, which its checkpoints hold."""
    remedy: str
    """What helps against a loss that is not finite."""
    length: str
    """Options that make a run longer."""
    often: str
    """When dev is measured, in a sentence."""
    first_rank_seeds = False
    """Whether the rank is part of the seed in the first process, too."""

    def __init__(self, seed: int, optimizer: str):
        super().__init__()
        self.seed = seed
        self.optimizer = optimizer
        self._whole: tuple[Within, ...] = ()  # tuples: their weights are those of the model
        self._plain: tuple[Any, ...] = ()

    @property
    def _sharding(self) -> FullyShard | None:
        """The strategy that shards the model; None: it stays whole, as without a trainer."""
        strategy = None if self._trainer is None else self.trainer.strategy
        return strategy if isinstance(strategy, FullyShard) else None

    def configure_model(self) -> None:
        if self._sharding is not None and not self._whole:
            self._plain = (self.plain_copy(),) if is_first() else ()
            self._whole = (self._sharding.shard(self.model),)

    def plain_copy(self) -> Any:
        """A model of the same form, which takes the whole weights at the end of a sharded training."""
        return deepcopy(self.model)

    def save(self, model: Any, folder: Path) -> None:
        """Write the trained model, which is that of all weights with adapters merged."""
        raise NotImplementedError

    def plain_model(self) -> Any:
        """The model to save, with adapters merged; None on other processes than the first of a sharded run.

        All processes must call it.
        """
        model = self.model
        if self._whole:
            weights = gathered_weights(self.model)
            if not self._plain:
                return None
            (model,) = self._plain
            model.load_state_dict(weights)
        merge_adapters(model)
        return model

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """A context in which each process can use the model on its own, in train or eval mode."""
        training = self.model.training
        with whole_weights(self.model, *(self._whole or (None,))):
            yield
        self.model.train(training)

    def within(self, work: Callable[..., Tensor], *arguments: Any) -> Tensor:
        return self._whole[0](work, *arguments) if self._whole else work(*arguments)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed dropout by the batch, and undo the eval mode of loading and validation."""
        self.model.train()
        batches, rank = self.trainer.fit_loop.epoch_loop.total_batch_idx, self.global_rank
        ranks = (rank,) if rank or self.first_rank_seeds else ()
        torch.manual_seed(hash((self.seed, batches, *ranks)) % 2**63)

    def optimizer_and_schedule(self, options: Any, steps: int | None = None) -> dict[str, Any]:
        """The optimizer of the weights that are trained, and its schedule, as Lightning takes them.

        ``steps``: all optimizer steps; None: as many as the trainer makes.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        rates = {"lr": options.learning_rate, "weight_decay": 0.0}
        optimizer: torch.optim.Optimizer
        if self.optimizer == "adafactor":
            optimizer = Adafactor(parameters, **rates, relative_step=False, scale_parameter=False)
        else:
            # Fused (one pass over memory), unless gradients are scaled (float16).
            fused = self.trainer.precision != "16-mixed" and all(p.device.type in _FUSED for p in parameters)
            optimizer = torch.optim.AdamW(parameters, **rates, fused=fused or None)
            # It could undo the scaling itself; Lightning then refuses to clip gradients, scaled or not.
            optimizer._step_supports_amp_scaling = False
        total = self.trainer.estimated_stepping_batches if steps is None else steps
        if math.isinf(total) and (options.schedule == "linear" or options.warmup > 0):
            raise ConfigError(
                "the learning rate's schedule needs the number of steps: set "
                f"{Option('trainer.max_epochs')} or {Option('trainer.max_steps')}, or take schedule "
                "`constant` with warmup 0."
            )
        total = 0 if math.isinf(total) else int(total)
        if options.schedule == "linear":
            scheduler = get_linear_schedule_with_warmup(optimizer, round(options.warmup * total), total)
        else:
            scheduler = get_constant_schedule_with_warmup(optimizer, round(options.warmup * total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["settings"] = dict(self.settings)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        remedy = f"resume with the options of that run, or begin a new run in another {Option('output')}."
        expected = self.state_dict()
        stored = checkpoint.get("state_dict", expected)  # of shards: compared where they are read
        for name in sorted(expected.keys() ^ stored.keys()):
            which = "lacks" if name in expected else "has"
            raise MismatchError(
                f"the checkpoint is of another model (it {which} the weights {name}): {remedy}"
            )
        for name, weights in expected.items():
            if weights.shape != stored[name].shape:
                raise MismatchError(
                    f"the checkpoint is of a model of other sizes ({name} has {list(stored[name].shape)}, "
                    f"here {list(weights.shape)}): {remedy}"
                )


class EncoderModule(TrainingModule):
    """An encoder, which is trained in place; it logs the measures on dev that choose the best epoch."""

    marker: str
    """A file that every folder of such a model has."""
    best: ClassVar[Mapping[str, Any]]
    """Options of the checkpoint of the best epoch: the measure that chooses it."""
    remedy = f"{Option('fit.learning_rate')}"
    length = f"{Option('fit.epochs')}"
    often = "Dev is measured after every epoch, and at the end."

    def __init__(self, model: Any, options: EncoderOptions, optimizer: str):
        super().__init__(options.seed, optimizer)
        self.model = model
        self.options: Any = options
        if options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        if options.lora_rank:
            network = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
            if network is None:
                raise ConfigError(
                    "lora_rank: the model has no network of transformers to add adapters to: set it to 0."
                )
            add_adapters(network, options.lora_rank)


class Labels(NamedTuple):
    """Tokens to predict among all of the vocabulary.

    Attributes:
        states: ``[L]`` index of the model's state that predicts each token.
        tokens: ``[L]``.
        weights: ``[L]`` weight in the loss.
    """

    states: Tensor
    tokens: Tensor
    weights: Tensor


class DecisionTensors(NamedTuple):
    """Distributions to predict over allowed tokens.

    Attributes:
        states: ``[D]`` index of the model's state at each decision.
        weights: ``[D]`` weight in the loss.
        owners: ``[A]`` the decision of each allowed token, ascending.
        tokens: ``[A]`` allowed tokens.
        probabilities: ``[A]`` target probabilities.
        gains: ``[A]`` gain of a prior, added to the score of each allowed token (nats).
    """

    states: Tensor
    weights: Tensor
    owners: Tensor
    tokens: Tensor
    probabilities: Tensor
    gains: Tensor


class Pairs(NamedTuple):
    """Inputs with the tokens that are written after each, padded.

    Attributes:
        input_ids: ``[b, s]``; of a causal model with what is written.
        attention_mask: ``[b, s]``.
        decoder_input_ids: ``[b, t]``; None for a causal model.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor | None


class Batch(NamedTuple):
    """A batch of training examples.

    Attributes:
        read: What the model reads: :class:`Pairs`, or a form of its own that its module reads.
        labels: For losses over the vocabulary; None: there are none.
        decisions: For losses over allowed tokens; None: there are none.
        size: Number of examples (of chains: of hops).
        divisor: What the sum of losses is divided by.
        rescored: Passages that a generator learns to rescore.
        ranked: Candidates that a generator learns to order.
    """

    read: Any
    labels: Labels | None
    decisions: DecisionTensors | None
    size: int
    divisor: float
    rescored: Any = None
    ranked: Any = None


def pad(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Padded rows and the mask that is 1 where they are not padding, ``[b, width]`` each."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), value, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return ids, mask


def pairs(
    sources: Sequence[Sequence[int]],
    written: Sequence[Sequence[int]],
    pad_token: int,
    start_token: int | None,
) -> tuple[Pairs, list[range]]:
    """Each source with what is written after it, and the states before and after each written token.

    ``start_token``: first token of the decoder; None for a causal model, which reads on after the source.
    """
    if start_token is None:
        rows = [[*source, *tokens] for source, tokens in zip(sources, written, strict=True)]
        ids, mask = pad(rows, pad_token)
        first, width, decoder = [len(source) - 1 for source in sources], ids.shape[1], None
    else:
        ids, mask = pad(sources, pad_token)
        decoder, _ = pad([[start_token, *tokens] for tokens in written], pad_token)
        first, width = [0] * len(sources), decoder.shape[1]
    begins = [row * width + offset for row, offset in enumerate(first)]
    states = [range(begin, begin + len(tokens) + 1) for begin, tokens in zip(begins, written, strict=True)]
    return Pairs(ids, mask, decoder), states


class GeneratorModule(TrainingModule):
    """Trains a generator. ``stage`` is the name of the training in the record beside the model."""

    first_rank_seeds = True
    remedy = (
        f"{Option('model.learning_rate')}, clip gradients ({Option('trainer.gradient_clip_val', 1)}), or "
        f"train in {Option('trainer.precision', '32-true')}"
    )
    length = (
        f"{Option('trainer.max_epochs')} or {Option('trainer.max_steps')} or "
        f"{Option('trainer.limit_train_batches')} or the max_time of {Option('trainer.more')}"
    )
    often = (
        f"How often dev is measured: {Option('trainer.val_check_interval')} (in batches; it should divide "
        f"those of the run) and {Option('trainer.check_val_every_n_epoch')}."
    )

    def __init__(self, options: ModelOptions, stage: str, seed: int = 0):
        super().__init__(seed, options.optimizer)
        self.options: Any = options
        self._rows: tuple[str, ...] = ()  # of identifiers
        self.model, self.tokenizer = self._load(options.generator)
        self.stages = (*options.generator.stages(), stage)
        if is_four_bit(self.model) and not options.lora_rank:
            raise ConfigError(
                f"four_bit: four bits cannot be trained: set {Option('model.lora_rank')} above 0."
            )
        if options.lora_rank:
            add_adapters(self.model, options.lora_rank)
        self.model.train()
        self._head = Head(self.model)
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for name, parameter in self.model.named_parameters():
            if "pooler" in name:  # no training here uses it
                parameter.requires_grad = False
        causal = is_causal(self.model)
        if options.freeze_encoder and causal:
            raise ConfigError("freeze_encoder: a causal language model has no encoder to freeze.")
        if options.freeze_encoder:
            self.model.get_encoder().requires_grad_(False)
        if options.freeze_embeddings or (options.freeze_embeddings is None and causal):
            self.model.get_input_embeddings().requires_grad_(False)

    def setup(self, stage: str) -> None:
        if self._sharding is not None and self.optimizer != "adamw":
            raise ConfigError(
                f"{Option('trainer.strategy', 'fsdp')}: set {Option('model.optimizer', 'adamw')}, got "
                f"{self.optimizer}."
            )
        _ = self._head.linear  # found out before the weights are sharded

    def add_rows(self, kind: IdentifierKind) -> None:
        """Add the rows of identifiers to the vocabulary of tokenizer and model, to be trained."""
        if not (names := kind.vocabulary):
            return
        options = self.options
        model = getattr(options.generator, "name_or_path", None)
        before = Path(model or "") / FOLDER
        learned = bool(model) and before.is_dir() and read_kind(before).fingerprint == kind.fingerprint
        if options.freeze_embeddings is None and not options.lora_rank and is_causal(self.model):
            self.model.get_input_embeddings().requires_grad_(True)
        self._rows = tuple(names)
        add_rows(self.model, self.tokenizer, names)
        self._head = Head(self.model)
        writer = self.model if is_causal(self.model) else self.model.get_decoder()
        tables = (writer.get_input_embeddings(), self._head.module)
        if not learned and not all(table.weight.requires_grad for table in tables):
            raise ConfigError(
                "the identifiers are made of rows of the vocabulary that the model has not learned for them, "
                f"and this training would not change: set {Option('model.lora_rank', 0)}, "
                f"{Option('model.freeze_embeddings', False)} and {Option('model.freeze_encoder', False)}, or "
                "take identifiers of texts."
            )

    def plain_copy(self) -> None:
        """None: the model is read again at the end, which needs no memory during the training."""

    def _load(self, generator: GeneratorSpec) -> Loaded:
        loaded = generator.load()
        if self.options.closing_markers:
            add_markers(*loaded, CLOSING_MARKERS)
        if self._rows:
            add_rows(*loaded, self._rows)
        return loaded

    def plain_model(self) -> Any:
        generator, rank = self.options.generator, self.options.lora_rank
        four_bit = is_four_bit(self.model)
        if not self._whole and not four_bit:
            return super().plain_model()
        weights = gathered_weights(self.model) if self._whole else self.model.state_dict()
        if not weights:
            return None
        if four_bit:  # all but the adapters is as it was
            generator = replace(generator, four_bit=False)
            weights = {name: value for name, value in weights.items() if "lora_" in name}
        model = self._load(generator).model
        if rank:
            add_adapters(model, rank)
        model.load_state_dict(weights, strict=not four_bit)
        merge_adapters(model)
        return model

    def save(self, model: Any, folder: Path) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        with atomic_folder(folder, "config.json") as new:
            write_network(model, new)
            reset_tokenizer(self.tokenizer)
            self.tokenizer.save_pretrained(new)
            data.write_beside(new)
            beside = [] if getattr(data, "priors", None) is None else [BESIDE]
            write_json(new / TRAINING, {"stages": [*self.stages, *beside]})

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.within(self.batch_loss, batch)
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=batch.size)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss = averaged(self.within(self.batch_loss, batch))
        times = self.trainer.datamodule.dev_copies(batch_idx)  # type: ignore[attr-defined]
        size = summed(batch.size, loss.device) // times  # the same everywhere, as the loss is
        self.log("dev_loss", loss, sync_dist=True, batch_size=size)

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar in float32; among several processes :func:`weighed`."""
        return self.written_loss(self.token_scores(self.read(batch.read), batch), batch)

    def read(self, inputs: Any) -> Tensor:
        """The model's states at all tokens that it writes, and at those of a causal model, ``[N, d]``."""
        pairs: Pairs = inputs
        decoder = pairs.decoder_input_ids
        # A causal model writes behind what it reads, so it needs no positions of its own for that.
        check_positions(self.model, pairs.input_ids.shape[1], 0 if decoder is None else decoder.shape[1])
        arguments = {} if decoder is None else {"decoder_input_ids": decoder}
        states = self._head.read(
            input_ids=pairs.input_ids, attention_mask=pairs.attention_mask, use_cache=False, **arguments
        )
        return states.flatten(0, 1)

    def token_scores(self, states: Tensor, batch: Batch) -> Tensor:
        """``[L + A]`` log-probabilities of labels, among the vocabulary, and of the allowed tokens."""
        scores = [states.new_zeros(0, dtype=torch.float32)]
        if (labels := batch.labels) is not None:
            logits = self._head.all(states[labels.states])  # only there: it is most of a small model's work
            scores.append(-F.cross_entropy(logits, labels.tokens, reduction="none"))
        if (decisions := batch.decisions) is not None:
            scores.append(taken_scores(self._head, states[decisions.states], decisions))
        return torch.cat(scores)

    def written_loss(self, scores: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over the vocabulary at labels, and over allowed tokens at decisions: their mean."""
        weights = [scores.new_zeros(0)]
        if (labels := batch.labels) is not None:
            weights.append(labels.weights)
        if (decisions := batch.decisions) is not None:
            weights.append(decisions.probabilities * decisions.weights[decisions.owners])
        total = -(scores * torch.cat(weights)).sum()
        return mean_over_processes(total / batch.divisor, batch.divisor)

    def configure_optimizers(self) -> Any:
        return self.optimizer_and_schedule(self.options)


def taken_scores(head: Head, hidden: Tensor, decisions: DecisionTensors) -> Tensor:
    """``[A]`` log-probability of each allowed token among the allowed tokens of its decision.

    With a prior, it is that under the product of model and prior. ``hidden [D, d]`` are inputs of the
    head. One matrix product gives the logits of all U tokens that any decision allows; gathering single
    logits would need a scatter in the backward pass.
    """
    if not len(hidden):
        return hidden.sum(-1)
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    gains = torch.full_like(logits, float("-inf"))
    gains[decisions.owners, columns] = decisions.gains.to(logits.dtype)
    scores = (logits + gains).log_softmax(-1)
    return scores[decisions.owners, columns]
