"""Trains a reranker on what documents did to a language model (arXiv 2302.00083, equation 9).

Legend: b prefixes of a batch, C candidates of each, f the reranker.

For a prefix x with candidates d_1 .. d_C and the likelihood p(y | [d_i; x]) of the stride y that follows,

    loss = -log sum_i p_rank(d_i | x) p(y | [d_i; x]),    p_rank(d_i | x) = softmax_i f(x, d_i):

the likelihood of the text if the document were drawn by the reranker. The language model itself is not needed
any more: its likelihoods are in the examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

from grls.answer.ralm.reranker import Reranker, RerankExample, document_texts
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.io.files import atomic_folder
from grls.train.core.checkpoints import (
    AtomicCheckpointIO,
    check_checkpoint,
    read_checkpoint,
    refuse_other_run,
)
from grls.train.core.finite import RERANKER, RefuseNaN
from grls.train.core.lines import TrainingLines


class RerankerModule(L.LightningModule):
    """The reranker, its loss, its optimizer.

    Args:
        reranker: What is trained.
        corpus: The passages.
        learning_rate: Peak rate of AdamW, after 10 % linear warm-up; it decays to zero.
        seed: Of dropout, a function of (seed, batch number), so that a resumed run repeats an uninterrupted
            one.
    """

    def __init__(self, reranker: Reranker, corpus: Corpus, learning_rate: float = 2e-5, seed: int = 0):
        super().__init__()
        self.model = reranker.model
        self._reranker = reranker
        self._corpus = corpus
        self._learning_rate = learning_rate
        self._seed = seed

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Tie dropout to the batch, and undo the eval mode that loading and validation leave behind."""
        self.model.train()
        torch.manual_seed(hash((self._seed, self.trainer.fit_loop.epoch_loop.total_batch_idx)) % 2**63)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse one of another model.

        Raises:
            MismatchError: It is.
        """
        refuse_other_run(self, checkpoint, "adamw")

    def training_step(self, batch: list[RerankExample], batch_idx: int) -> Tensor:
        """Loss of one batch; logs ``train_loss``."""
        loss = self._losses(batch).mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: list[RerankExample], batch_idx: int) -> None:
        """Logs ``dev_loss``, and ``dev_gain``: nats a stride that its choice gains over the retriever's."""
        values = self._values(batch)
        self.log("dev_loss", _mean(values, batch, rerank_loss), batch_size=len(batch))
        self.log("dev_gain", _mean(values, batch, _gain), batch_size=len(batch))

    def configure_optimizers(self) -> Any:
        """AdamW, stepped every optimizer step."""
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self._learning_rate)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _losses(self, batch: Sequence[RerankExample]) -> Tensor:
        values = self._values(batch)
        return torch.stack([rerank_loss(own, _scores(e)) for own, e in zip(values, batch, strict=True)])

    def _values(self, batch: Sequence[RerankExample]) -> tuple[Tensor, ...]:
        """``f`` of the candidates of each prefix."""
        ids = list(dict.fromkeys(name for example in batch for name in example.passages))
        numbers = [number for number in self._corpus.numbers(ids) if number is not None]
        texts = dict(zip(ids, document_texts(self._corpus, numbers).values(), strict=True))
        values = self._reranker.logits(
            [example.prefix for example in batch for _ in example.passages],
            [texts[name] for example in batch for name in example.passages],
        )
        parts: tuple[Tensor, ...] = values.split([len(example.passages) for example in batch])
        return parts


def rerank_loss(values: Tensor, scores: Tensor) -> Tensor:
    """Equation 9 for one prefix.

    Args:
        values: ``[C]`` the reranker's numbers f.
        scores: ``[C]`` log-probability (nats) of the stride behind each candidate.
    """
    return -(values.log_softmax(-1) + scores.to(values.device)).logsumexp(-1)


def fit_reranker(
    reranker: Reranker,
    corpus: Corpus,
    train: Sequence[RerankExample],
    dev: Sequence[RerankExample],
    output: str | Path,
    epochs: int = 3,
    batch_size: int = 4,
    learning_rate: float = 2e-5,
    seed: int = 0,
    resume: bool = False,
) -> float:
    """Train, keep the epoch with the lowest dev loss, and write OUTPUT/model.

    Args:
        reranker: What is trained, in place.
        corpus: The passages.
        train: Examples to learn from.
        dev: Examples to choose the epoch by.
        output: Folder for model, checkpoints and logs.
        epochs: Epochs.
        batch_size: Prefixes a step, each with all its candidates.
        learning_rate: Peak rate.
        seed: Of order and dropout.
        resume: Go on from OUTPUT/checkpoints/last.ckpt.

    Returns:
        The best dev loss (nats a stride).

    Raises:
        ConfigError: A number is not positive, or there is no checkpoint to go on from.
        DataError: An example names a passage that the corpus does not hold.
    """
    if min(epochs, batch_size) < 1 or learning_rate <= 0:
        raise ConfigError(
            f"epochs, batch_size and learning_rate must be positive, got {epochs}, {batch_size}, "
            f"{learning_rate}."
        )
    for examples in (train, dev):
        _refuse_unknown(corpus, examples)
    folder = Path(output)
    last = folder / "checkpoints" / "last.ckpt"
    if resume:
        check_checkpoint(str(last))
    best = ModelCheckpoint(
        folder / "checkpoints", "best", monitor="dev_loss", mode="min", enable_version_counter=False
    )
    latest = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
    trainer = L.Trainer(
        max_epochs=epochs, accelerator=reranker.model.device.type, devices=1,
        callbacks=[RefuseNaN(RERANKER), TrainingLines(), best, latest],
        plugins=[AtomicCheckpointIO()], logger=CSVLogger(folder, name="logs"),
        enable_model_summary=False, log_every_n_steps=10,
    )  # fmt: skip
    module = RerankerModule(reranker, corpus, learning_rate, seed)
    loaders = _loader(train, batch_size, seed), _loader(dev, batch_size, None)
    trainer.fit(module, *loaders, ckpt_path=str(last) if resume else None, weights_only=True)
    state = read_checkpoint(best.best_model_path)
    module.load_state_dict(state["state_dict"])
    with atomic_folder(folder / "model", "config.json") as new:
        reranker.save(new)
    return float(best.best_model_score or 0.0)


def _loader(examples: Sequence[RerankExample], size: int, seed: int | None) -> DataLoader[Any]:
    """Batches of examples as they are; shuffled where there is a seed."""
    sampler = None if seed is None else _Shuffled(len(examples), seed)
    return DataLoader(list(examples), size, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]


class _Shuffled(torch.utils.data.Sampler[int]):
    """A new order each epoch, a function of seed and epoch alone."""

    def __init__(self, count: int, seed: int):
        self._count, self._seed, self._epoch = count, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning says which epoch comes."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(hash((self._seed, self._epoch)) % 2**63)
        return iter(torch.randperm(self._count, generator=generator).tolist())


def _refuse_unknown(corpus: Corpus, examples: Sequence[RerankExample]) -> None:
    ids = list(dict.fromkeys(name for example in examples for name in example.passages))
    for name, number in zip(ids, corpus.numbers(ids), strict=True):
        if number is None:
            raise DataError(f"an example names the passage {name!r}, which is not in it.", corpus.source)


def _scores(example: RerankExample) -> Tensor:
    return torch.tensor(example.scores, dtype=torch.float32)


def _gain(values: Tensor, scores: Tensor) -> Tensor:
    return scores[int(values.argmax())] - scores[0]


def _mean(values: Sequence[Tensor], batch: Sequence[RerankExample], measure: Any) -> Tensor:
    return torch.stack([measure(own, _scores(e)).cpu() for own, e in zip(values, batch, strict=True)]).mean()
