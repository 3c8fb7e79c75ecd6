"""The LightningModule of a reranker.

Legend: C candidates of a prefix, f the reranker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import lightning as L
import torch
from torch import Tensor
from transformers import get_linear_schedule_with_warmup

from grls.answer.ralm.reranker import Reranker, RerankExample, document_texts
from grls.data.corpus import Corpus
from grls.models.lora import add_adapters, merge_adapters
from grls.train.core.checkpoints import refuse_other_run
from grls.train.core.processes import averaged, is_first, summed, weighed
from grls.train.core.sharded import FullyShard, Within, gathered_weights
from grls.train.reranker.loss import choice_gain, rerank_loss
from grls.train.reranker.options import USUAL_FIT, RerankerOptions


class RerankerModule(L.LightningModule):
    """The reranker, its loss, its optimizer.

    Args:
        reranker: The reranker to train.
        corpus: The passages; None: examples are hops, with texts of passages in place of ids.
        options: Of these, the learning rate is that of AdamW after 10 % linear warm-up; it decays to zero.
            Dropout is a function of (seed, batch number): a resumed run repeats an uninterrupted one.
    """

    def __init__(self, reranker: Reranker, corpus: Corpus | None, options: RerankerOptions = USUAL_FIT):
        super().__init__()
        self.model = reranker.model
        self._reranker = reranker
        self._corpus = corpus
        self._learning_rate = options.learning_rate
        self._seed = options.seed
        if options.lora_rank:
            add_adapters(self.model, options.lora_rank, options.lora_dropout)
            _train_head(self.model)
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._whole: tuple[Within, ...] = ()  # a tuple: its weights are those of the model
        self._plain: tuple[Any, ...] = ()

    def configure_model(self) -> None:
        """Shard the model, where the strategy does."""
        strategy = self.trainer.strategy
        if isinstance(strategy, FullyShard) and not self._whole:
            self._plain = (deepcopy(self.model),) if is_first() else ()
            self._whole = (strategy.shard(self.model),)

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

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed dropout by the batch, and undo the eval mode of loading and validation."""
        self.model.train()
        done, rank = self.trainer.fit_loop.epoch_loop.total_batch_idx, self.global_rank
        torch.manual_seed(hash((self._seed, done, rank) if rank else (self._seed, done)) % 2**63)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another model.

        Raises:
            MismatchError: The checkpoint is of another model.
        """
        refuse_other_run(self, checkpoint, "adamw")

    def training_step(self, batch: list[RerankExample], batch_idx: int) -> Tensor:
        """The loss of one batch; logs ``train_loss``."""
        loss = weighed(self._within(self._losses, batch).mean(), len(batch))
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: list[RerankExample], batch_idx: int) -> None:
        """Log ``dev_loss``, and ``dev_gain``: gain of its choice over the retriever's (nats a stride).

        Of hops there is no gain: their first candidate is the right passage, no retriever's choice.
        """
        values = self._within(self._logits, batch).split([len(example.passages) for example in batch])
        shares: Any = self.trainer.val_dataloaders.batch_sampler  # type: ignore[union-attr]
        size = summed(len(batch), self.device) // shares.copies(batch_idx)
        gain = {} if self._corpus is None else {"dev_gain": choice_gain}
        for name, measure in {"dev_loss": rerank_loss, **gain}.items():
            mean = _mean(values, batch, measure).to(self.device)
            self.log(name, averaged(weighed(mean, len(batch))), sync_dist=True, batch_size=size)

    def configure_optimizers(self) -> Any:
        """AdamW and its schedule, which advances every optimizer step."""
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self._learning_rate)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _within(self, work: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """What ``work`` returns, within whole weights where they are sharded."""
        return self._whole[0](work, *arguments) if self._whole else work(*arguments)

    def _losses(self, batch: Sequence[RerankExample]) -> Tensor:
        values = self._logits(batch).split([len(example.passages) for example in batch])
        pairs = zip(values, batch, strict=True)
        return torch.stack([rerank_loss(logits, _scores(example)) for logits, example in pairs])

    def _logits(self, batch: Sequence[RerankExample]) -> Tensor:
        """Logits f of the candidates of all prefixes, one prefix after the other."""
        names = [name for example in batch for name in example.passages]
        return self._reranker.logits(
            [example.prefix for example in batch for _ in example.passages], self._texts(names)
        )

    def _texts(self, names: Sequence[str]) -> Sequence[str]:
        """The texts of passages."""
        if self._corpus is None:
            return names
        ids = list(dict.fromkeys(names))
        numbers = [number for number in self._corpus.numbers(ids) if number is not None]
        texts = dict(zip(ids, document_texts(self._corpus, numbers).values(), strict=True))
        return [texts[name] for name in names]


def _train_head(model: Any) -> None:
    """Train what stands on the encoder, beside the adapters: it may be new."""
    for name, weights in model.named_parameters():
        if not name.startswith(f"{model.base_model_prefix}."):
            weights.requires_grad = True


def _scores(example: RerankExample) -> Tensor:
    return torch.tensor(example.scores, dtype=torch.float32)


def _mean(values: Sequence[Tensor], batch: Sequence[RerankExample], measure: Any) -> Tensor:
    pairs = zip(values, batch, strict=True)
    return torch.stack([measure(logits, _scores(example)).cpu() for logits, example in pairs]).mean()
