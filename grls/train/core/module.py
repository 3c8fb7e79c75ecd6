"""The LightningModule of both stages: the model, its two losses, its optimizer.

Legend: b examples, t target positions, d model width, V vocabulary.

Two losses. ``full``: cross-entropy over the vocabulary, as in the paper (arXiv 2204.13596).
``allowed``: cross-entropy over the tokens that the constraint index allows, which is what
``renormalized`` scores measure at retrieval. The module holds no index: what is allowed comes with the
batch.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup
from transformers.modeling_outputs import BaseModelOutput
from transformers.optimization import Adafactor

from grls.errors import ConfigError
from grls.models.head import Head
from grls.models.load.build import GeneratorSpec
from grls.models.load.kinds import is_causal
from grls.models.lora import add_adapters
from grls.models.seq2seq.plain import check_positions
from grls.train.core.checkpoints import refuse_other_run
from grls.train.core.collate import IGNORED, Batch, Choices
from grls.train.core.encoder_cache import EncoderCache, check_cache

Loss = Literal["full", "allowed"]

_FUSED = ("cpu", "cuda")
"""Devices for which AdamW has one kernel for all it does."""


class GeneratorModule(L.LightningModule):
    """Trains a generator.

    Args:
        generator: The model to start from.
        optimizer: ``adafactor`` with a fixed rate, as in the paper, or ``adamw``.
        learning_rate: Peak learning rate.
        schedule: ``constant`` or ``linear`` decay to zero, after the warm-up.
        warmup: Share of all steps that the rate takes to rise.
        weight_decay: Weight decay.
        loss: ``full``: over the vocabulary; ``allowed``: over what the constraint index allows.
        label_smoothing: Of the full loss.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, more time.
        freeze_encoder: Leave the encoder as it is, with all it shares (T5: the word embeddings).
        cache_encoder: Keep the states of a frozen encoder for the inputs that recur in later epochs, in up to
            so many GiB of main memory a process (:mod:`grls.train.core.encoder_cache`: it then has no
            dropout);
            0: no cache.
        lora_rank: Train low-rank adapters of this rank beside every linear layer but the head, and nothing
            else (:mod:`grls.models.lora`); merged into the model that is saved. 0: train the weights.
        lora_dropout: Of the adapters' inputs.
        seed: Of dropout, which is a function of (seed, batch number, rank), so that a resumed run repeats
            an uninterrupted one; null: that of ``seed_everything`` (0 without the command).

    Raises:
        ConfigError: A rate is out of range.
    """

    stage = ""
    """What the model is said to have gone through; empty: the name of the class."""

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adafactor",
        learning_rate: float = 1e-4,
        schedule: Literal["constant", "linear"] = "linear",
        warmup: float = 0.1,
        weight_decay: float = 0.0,
        loss: Loss = "full",
        label_smoothing: float = 0.0,
        gradient_checkpointing: bool = False,
        freeze_encoder: bool = False,
        cache_encoder: float = 0.0,
        lora_rank: int = 0,
        lora_dropout: float = 0.0,
        seed: int | None = None,
    ):
        super().__init__()
        if learning_rate <= 0 or not 0 <= warmup <= 1:
            raise ConfigError(
                f"learning_rate must be positive and warmup a share of 1, got {learning_rate} and {warmup}."
            )
        self.model, self.tokenizer = generator.load()
        self.stages = (*generator.stages(), self.stage or type(self).__name__.lower())
        if lora_rank:
            add_adapters(self.model, lora_rank, lora_dropout)
        self.model.train()
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.loss: Loss = loss
        self.label_smoothing = label_smoothing
        self.seed = seed or 0
        self._head = Head(self.model)
        if gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._freeze(freeze_encoder and not is_causal(self.model))
        self._asked_to_freeze = freeze_encoder
        self.cache_encoder = cache_encoder
        self._cache = EncoderCache(cache_encoder) if cache_encoder else None

    def setup(self, stage: str) -> None:
        """Refuse what cannot work; in the constructor, jsonargparse would bury our error in one of its own.

        Raises:
            ConfigError: There is no encoder to freeze, its states cannot be kept, or the loss is over what is
                allowed and the model's logits are not those of its head.
        """
        if self._asked_to_freeze and is_causal(self.model):
            raise ConfigError("freeze_encoder: a causal language model has no encoder to freeze.")
        check_cache(self.cache_encoder, self.model)
        if self.loss == "allowed":
            self.refuse_other_logits()

    def refuse_other_logits(self) -> None:
        """Refuse a model whose logits are not its head's, where the loss is taken at the head.

        Raises:
            ConfigError: It has no linear head, or scales, caps or masks what it gives.
        """
        if not self._head.linear:
            raise ConfigError(
                f"{type(self.model).__name__} has no linear head, or changes its logits behind the head "
                "(scales, caps or masks them), which this loss would not see: take another model."
            )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse one of another run, and forget states of the weights before.

        Raises:
            MismatchError: It is of another model, stage or optimizer.
        """
        refuse_other_run(self, checkpoint, self.optimizer)
        if self._cache is not None:
            self._cache.clear()

    def _freeze(self, encoder: bool) -> None:
        """No gradient for the encoder if asked, nor for a pooler, which nothing here uses."""
        for name, parameter in self.model.named_parameters():
            if "pooler" in name:
                parameter.requires_grad = False
        if encoder:
            for parameter in self.model.get_encoder().parameters():
                parameter.requires_grad = False

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Tie dropout to the batch, and undo the eval mode that loading and validation leave behind."""
        self.model.train()
        done = self.trainer.fit_loop.epoch_loop.total_batch_idx
        torch.manual_seed(hash((self.seed, done, self.global_rank)) % 2**63)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch; logs ``train_loss``."""
        loss = self.batch_loss(batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Logs ``dev_loss``."""
        self.log("dev_loss", self.batch_loss(batch), sync_dist=True, batch_size=len(batch.labels))

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch, a scalar in float32.

        Raises:
            ConfigError: The model has fewer positions than the batch is long.
        """
        check_positions(self.model, batch.input_ids.shape[1], batch.labels.shape[1])
        arguments = {
            **self._source(batch.input_ids, batch.attention_mask),
            "decoder_input_ids": batch.decoder_input_ids,
            "use_cache": False,
        }
        if batch.choices is None:
            logits = self.model(**arguments).logits.float()
            return F.cross_entropy(
                logits.flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=IGNORED,
                label_smoothing=self.label_smoothing,
            )
        with self._head.catch() as caught:
            self.model(**arguments)
        return allowed_loss(self._head, caught[0], batch.labels, batch.choices)

    def _source(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Any]:
        """What tells the model its inputs: tokens, or the states that the cache has for them."""
        if self._cache is None:
            return {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self._cache(self.model.get_encoder(), input_ids, attention_mask)
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=states),
            "attention_mask": attention_mask,
        }

    def configure_optimizers(self) -> Any:
        """The optimizer with its schedule, stepped every optimizer step."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        optimizer: torch.optim.Optimizer
        if self.optimizer == "adafactor":
            optimizer = Adafactor(
                parameters,
                lr=self.learning_rate,
                weight_decay=self.weight_decay,
                relative_step=False,
                scale_parameter=False,
            )
        else:
            optimizer = self._adamw(parameters)
        total = self.trainer.estimated_stepping_batches
        if math.isinf(total) and (self.schedule == "linear" or self.warmup > 0):
            raise ConfigError(
                "the learning rate's schedule needs the number of steps: set --trainer.max_epochs or "
                "--trainer.max_steps, or take schedule `constant` with warmup 0."
            )
        steps = 0 if math.isinf(total) else int(total)
        warmup = round(self.warmup * steps)
        if self.schedule == "linear":
            scheduler = get_linear_schedule_with_warmup(optimizer, warmup, steps)
        else:
            scheduler = get_constant_schedule_with_warmup(optimizer, warmup)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _adamw(self, parameters: list[nn.Parameter]) -> torch.optim.AdamW:
        """AdamW that updates every weight in one pass over memory, unless gradients are scaled (float16)."""
        fused = self.trainer.precision != "16-mixed" and all(p.device.type in _FUSED for p in parameters)
        optimizer = torch.optim.AdamW(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused or None
        )
        # It could undo the scaling by itself, for which lightning refuses to clip gradients, scaled or not.
        optimizer._step_supports_amp_scaling = False
        return optimizer


class Memorise(GeneratorModule):
    """Stage one: write a passage given its front. Defaults of the paper: Adafactor, constant 1e-5.

    Args:
        generator: The model to start from.
        learning_rate: Peak learning rate.
        schedule: ``constant`` or ``linear``.
        warmup: Share of all steps that the rate takes to rise.
        kwargs: The options of :class:`GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        learning_rate: float = 1e-5,
        schedule: Literal["constant", "linear"] = "constant",
        warmup: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(generator, learning_rate=learning_rate, schedule=schedule, warmup=warmup, **kwargs)


class Retrieve(GeneratorModule):
    """Stage two: write the next passage given query and evidence.

    Defaults of the paper: Adafactor, 1e-4, 10 % linear warm-up, linear decay.

    Args:
        generator: The model to start from (what the memorise stage wrote).
        kwargs: The options of :class:`GeneratorModule`.
    """

    def __init__(self, generator: GeneratorSpec, **kwargs: Any):
        super().__init__(generator, **kwargs)


def allowed_loss(head: Head, hidden: Tensor, labels: Tensor, choices: Choices) -> Tensor:
    """Cross-entropy over the allowed tokens, averaged over positions that have a choice.

    For a position with allowed tokens C and target y the loss is
    log(sum over c in C of exp(z_c)) - z_y, with z the model's logits; it is the negative logarithm of the
    ``renormalized`` probability of y. One matrix product gives the logits of all U tokens that any position
    allows, and a mask takes out the rest: its backward pass is a product too, where gathering pairs would
    scatter.

    Args:
        head: The model's output head.
        hidden: ``[b, t, d]`` what reaches it.
        labels: ``[b, t]``.
        choices: The allowed tokens; P positions after the first.
    """
    examples = len(labels)
    rows = torch.cat((hidden[:, 0], hidden.flatten(0, 1)[choices.places]))
    targets = torch.cat((labels[:, 0], choices.tokens[choices.targets]))
    union = torch.cat((choices.first, choices.tokens)).unique()
    allowed = torch.zeros((len(rows), len(union)), dtype=torch.bool, device=rows.device)
    allowed[:examples, torch.searchsorted(union, choices.first)] = True
    allowed[examples + choices.positions, torch.searchsorted(union, choices.tokens)] = True
    logits = head.some(rows, union).masked_fill(~allowed, float("-inf"))
    return F.cross_entropy(logits, torch.searchsorted(union, targets))
