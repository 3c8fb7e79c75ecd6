"""Constrained recall on dev.

Training retrieves only here. The best checkpoint is chosen by recall, which users see, and not by the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import lightning as L
import torch

from grls.data.dataset import gold_passages
from grls.errors import ConfigError, Option
from grls.evaluation.metrics import recall_at, set_f1
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.train.options import RecallOptions


class ConstrainedRecall(L.Callback):
    """Measures retrieval on dev at the end of each validation.

    See :class:`grls.train.options.RecallOptions`.
    """

    def __init__(self, options: RecallOptions):
        self.k, self.hops = options.k, options.hops
        self.options = SearchOptions(max(options.k, options.beams), batch_size=64, rescore=options.rescore)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if self.hops and data.dev_queries is None:
            raise ConfigError(f"{Option('recall.hops')} needs dev queries: set it to 0 to memorise.")
        measured = ["train_loss", "dev_loss"]
        if data.dev_inputs():
            measured += ["dev_recall", *(["dev_f1"] if self.hops else [])]
        hint = f"dev_recall needs whole passages as targets, dev_f1 needs {Option('recall.hops')} above 0."
        refuse_unmeasured(trainer, measured, hint)
        if self.options.rescore and data.rescore_input is None:
            raise ConfigError(
                f"{Option('recall.rescore')} needs a generator that learns to rescore: set "
                f"{Option('data.rescore')}."
            )

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure and log; each process retrieves its share of the inputs."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.sanity_checking or not data.dev_inputs():
            return
        module: Any = pl_module
        with module.whole_weights():
            options = replace(self.options, truncate_queries=data.options.truncate_queries)
            parts = (module.model, data.codec, data.corpus, data.index)
            retriever = GenerativeRetriever(*parts, options, (), data.identifiers, data.rescore_input)
            hybrid = None if data.priors is None else data.priors.beside(retriever)
            share = slice(trainer.global_rank, None, trainer.world_size)
            inputs = data.dev_inputs()[share]
            # Neither DONE nor the evidence of an input is retrieved, as in the search.
            hidden = [[retriever.done, *i.evidence] for i in inputs]
            if hybrid is None:
                rankings = retriever.search([i.source for i in inputs], self.k, hidden)
            else:
                queries = [i.query for i in inputs if i.query is not None]
                evidence = [data.corpus.passages(i.evidence) for i in inputs]
                rankings = hybrid.search(queries, evidence, self.k, hidden)
            recalls = [
                recall_at([h.id for h in retriever.hits(hits)], i.gold, self.k)
                for hits, i in zip(rankings, inputs, strict=True)
            ]
            scores = {"dev_recall": recalls}
            if self.hops:
                queries, qrels = data.dev_queries
                own = queries[share]
                search = HopsRetriever(hybrid or retriever, HopOptions("dynamic", self.hops))
                scores["dev_f1"] = [
                    set_f1([h.id for h in best[0].hits] if best else [], gold_passages(query, qrels))["f1"]
                    for best, query in zip(search.retrieve_chains(own), own, strict=True)
                ]
            log_means(trainer, module, scores)


def refuse_unmeasured(trainer: L.Trainer, measured: Sequence[str], hint: str = "") -> None:
    """Refuse a checkpoint callback that monitors a metric which this run does not measure."""
    for callback in trainer.checkpoint_callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in measured:
            raise ConfigError(
                f"{Option('checkpoint.monitor', monitor)} is not measured in this run (measured: "
                f"{', '.join(measured)}): name one of them. {hint}".rstrip()
            )


def log_means(
    trainer: L.Trainer, pl_module: L.LightningModule, scores: Mapping[str, Sequence[float]]
) -> None:
    for name, values in scores.items():
        # The same type on every process: a process without inputs would send integers.
        sums = torch.tensor([sum(values), len(values)], dtype=torch.float32, device=pl_module.device)
        total, count = trainer.strategy.reduce(sums, reduce_op="sum")
        pl_module.log(name, total / count, prog_bar=True, sync_dist=False, rank_zero_only=False)
