"""Trains a reranker on a language model's likelihoods after its documents (arXiv 2302.00083)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from grls.answer.ralm.reranker import Reranker, RerankExample
from grls.data.corpus import Corpus
from grls.errors import DataError, Option
from grls.io.files import atomic_folder
from grls.models.precision import has_bfloat16, warn_of_emulation
from grls.train.core.checkpoints import AtomicCheckpointIO, check_checkpoint, read_checkpoint
from grls.train.core.finite import RERANKER, RefuseNaN
from grls.train.core.lines import TrainingLines
from grls.train.core.malloc_trim import GiveBackFreed
from grls.train.core.processes import Launched, by_first, launched, leaving_no_group
from grls.train.core.sharded import FullyShard
from grls.train.reranker.data import rerank_loader
from grls.train.reranker.module import RerankerModule
from grls.train.reranker.options import USUAL_FIT, RerankerOptions


@leaving_no_group()
def fit_reranker(
    reranker: Reranker,
    corpus: Corpus | None,
    train: Sequence[RerankExample],
    dev: Sequence[RerankExample],
    output: str | Path,
    options: RerankerOptions = USUAL_FIT,
    resume: bool = False,
) -> float:
    """Train, keep the epoch with the lowest dev loss, and write OUTPUT/model.

    Args:
        reranker: The reranker; it is trained in place.
        corpus: The passages; None: examples hold texts of passages in place of ids.
        train: The training examples; hops are drawn anew each epoch.
        dev: Examples for the choice of the best epoch.
        output: Folder for model, checkpoints and logs.
        options: The options of the training.
        resume: Resume from OUTPUT/checkpoints/last.ckpt.

    Returns:
        The best dev loss (nats a stride).

    Raises:
        ConfigError: There is no checkpoint to resume from, or the model cannot be sharded.
        DataError: A passage of an example is not in the corpus.
    """
    if corpus is not None:
        _refuse_unknown(corpus, [*train, *dev])
    folder = Path(output)
    last = folder / "checkpoints" / "last.ckpt"
    sharded = options.strategy != "ddp"
    if resume:
        check_checkpoint(str(last), shards=sharded)
    best = ModelCheckpoint(
        folder / "checkpoints", "best", monitor="dev_loss", mode="min", enable_version_counter=False
    )
    latest = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
    trainer = _trainer(reranker, options, folder, [best, latest])
    module = RerankerModule(reranker, corpus, options)
    loaders = (
        rerank_loader(train, options.batch_size, options.seed), rerank_loader(dev, options.batch_size, None)
    )  # fmt: skip
    trainer.fit(module, *loaders, ckpt_path=str(last) if resume else None, weights_only=not sharded)
    if isinstance(trainer.strategy, FullyShard):
        trainer.strategy.load_weights(best.best_model_path)
    else:
        module.load_state_dict(read_checkpoint(best.best_model_path)["state_dict"])
    reranker.model = module.plain_model() or reranker.model
    by_first(lambda: _save(reranker, folder / "model"))
    return float(best.best_model_score or 0.0)


def _trainer(
    reranker: Reranker, options: RerankerOptions, folder: Path, checkpoints: Sequence[ModelCheckpoint]
) -> L.Trainer:
    started, device = launched() or Launched(1, 1), reranker.model.device
    strategy: Any = "auto" if started == (1, 1) else "ddp"
    if options.strategy != "ddp":
        strategy = FullyShard(cpu_offload="offload" in options.strategy)
    elif options.lora_rank and strategy == "ddp":
        strategy = "ddp_find_unused_parameters_true"
    if options.precision == "bfloat16":
        warn_of_emulation(device, str(Option("fit.precision", "float32", "auto")))
    low = has_bfloat16(device) if options.precision == "auto" else options.precision == "bfloat16"
    plugins: list[Any] = [] if options.strategy != "ddp" else [AtomicCheckpointIO()]
    return L.Trainer(
        max_epochs=options.epochs, accelerator=device.type, devices=started.devices,
        num_nodes=started.nodes, strategy=strategy, precision="bf16-mixed" if low else "32-true",
        use_distributed_sampler=False, inference_mode=options.strategy == "ddp",
        callbacks=[GiveBackFreed(), RefuseNaN(RERANKER), TrainingLines(), *checkpoints],
        plugins=plugins, logger=CSVLogger(folder, name="logs"),
        enable_model_summary=False, log_every_n_steps=10,
    )  # fmt: skip


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
