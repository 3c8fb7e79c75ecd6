"""Trains a reranker on a language model's likelihoods after its documents (arXiv 2302.00083)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from grls.answer.ralm.reranker import Reranker, RerankExample
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.io.files import atomic_folder
from grls.train.core.checkpoints import AtomicCheckpointIO, check_checkpoint, read_checkpoint
from grls.train.core.finite import RERANKER, RefuseNaN
from grls.train.core.lines import TrainingLines
from grls.train.core.processes import Launched, by_first, launched
from grls.train.reranker.data import rerank_loader
from grls.train.reranker.module import RerankerModule


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
        reranker: The reranker; it is trained in place.
        corpus: The passages.
        train: The training examples.
        dev: Examples for the choice of the best epoch.
        output: Folder for model, checkpoints and logs.
        epochs: Passes over the examples.
        batch_size: Prefixes in a batch, each with all its candidates.
        learning_rate: Peak learning rate.
        seed: Seed of order and dropout.
        resume: Resume from OUTPUT/checkpoints/last.ckpt.

    Returns:
        The best dev loss (nats a stride).

    Raises:
        ConfigError: A number is not positive, or there is no checkpoint to resume from.
        DataError: A passage of an example is not in the corpus.
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
    started = launched() or Launched(1, 1)
    trainer = L.Trainer(
        max_epochs=epochs, accelerator=reranker.model.device.type, devices=started.devices,
        num_nodes=started.nodes, strategy="auto" if started == (1, 1) else "ddp",
        use_distributed_sampler=False,
        callbacks=[RefuseNaN(RERANKER), TrainingLines(), best, latest],
        plugins=[AtomicCheckpointIO()], logger=CSVLogger(folder, name="logs"),
        enable_model_summary=False, log_every_n_steps=10,
    )  # fmt: skip
    module = RerankerModule(reranker, corpus, learning_rate, seed)
    loaders = rerank_loader(train, batch_size, seed), rerank_loader(dev, batch_size, None)
    trainer.fit(module, *loaders, ckpt_path=str(last) if resume else None, weights_only=True)
    state = read_checkpoint(best.best_model_path)
    module.load_state_dict(state["state_dict"])
    by_first(lambda: _save(reranker, folder / "model"))
    return float(best.best_model_score or 0.0)


def _save(reranker: Reranker, folder: Path) -> None:
    with atomic_folder(folder, "config.json") as new:
        reranker.save(new)


def _refuse_unknown(corpus: Corpus, examples: Sequence[RerankExample]) -> None:
    ids = list(dict.fromkeys(name for example in examples for name in example.passages))
    for name, number in zip(ids, corpus.numbers(ids), strict=True):
        if number is None:
            raise DataError(
                f"the passage {name!r} of an example is not in the corpus: take the corpus with which the "
                "examples were collected.",
                corpus.source,
            )
