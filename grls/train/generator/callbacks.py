"""Constrained recall on dev, and the folder of the best model.

Training retrieves only here. The best checkpoint is chosen by recall, which users see, and not by the loss.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from grls.data.codec import reset_tokenizer
from grls.data.dataset import gold_passages
from grls.errors import ConfigError, Option
from grls.evaluation.metrics import recall_at, set_f1
from grls.io.files import atomic_folder, write_json
from grls.models.load.build import BESIDE, TRAINING
from grls.models.load.opening import write_network
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.train.core.checkpoints import BestCheckpoint, kept_checkpoint
from grls.train.core.trainer import is_metered, load_weights, spoiled
from grls.train.options import RecallOptions

log = logging.getLogger(__name__)


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
        hint = (
            f"dev_recall needs whole passages as targets, dev_f1 needs {Option('recall.hops')} above 0; a "
            f"loss needs {Option('checkpoint.mode', 'min')}."
        )
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


def refuse_unmeasured(trainer: L.Trainer, measured: Sequence[str], hint: str) -> None:
    """Refuse a checkpoint callback that monitors a metric which this run does not measure."""
    for callback in trainer.checkpoint_callbacks:
        monitor = getattr(callback, "monitor", None)
        if monitor is not None and monitor not in measured:
            raise ConfigError(
                f"{Option('checkpoint.monitor', monitor)} is not measured in this run (measured: "
                f"{', '.join(measured)}). {hint}"
            )


def log_means(
    trainer: L.Trainer, pl_module: L.LightningModule, scores: Mapping[str, Sequence[float]]
) -> None:
    for name, values in scores.items():
        # The same type on every process: a process without inputs would send integers.
        sums = torch.tensor([sum(values), len(values)], dtype=torch.float32, device=pl_module.device)
        total, count = trainer.strategy.reduce(sums, reduce_op="sum")
        pl_module.log(name, total / count, prog_bar=True, sync_dist=False, rank_zero_only=False)


class SaveModel(L.Callback):
    """Writes model and tokenizer of the best checkpoint as a folder for the next stage, at the end.

    Warns where training went on after the last measurement on dev: no best checkpoint has those steps.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self._looked = 0

    def state_dict(self) -> dict[str, Any]:
        """The step of the last measurement on dev, for a resumed run."""
        return {"looked": self._looked}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._looked = state_dict["looked"]

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._looked = trainer.global_step

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Load the weights of the best checkpoint, if there is one, and write the model."""
        if not trainer.global_step:
            limits = ("max_epochs", "max_steps", "max_time", "limit_train_batches")
            options = " or ".join(f"{Option(f'trainer.{name}')}" for name in limits)
            raise ConfigError(f"no step was made, so nothing was written to {self.folder}: raise {options}.")
        module: Any = pl_module
        checkpoints = (c for c in trainer.checkpoint_callbacks if isinstance(c, BestCheckpoint))
        asked = not trainer.fast_dev_run  # type: ignore[attr-defined]
        best = next((c for c in checkpoints if c.monitor and c.save_top_k and asked), None)
        taken, measured = trainer.global_step, ""
        trouble = ""
        if best is not None and not best.best_model_path:
            trouble = f"{best.monitor} was never measured"
        elif best is not None:
            try:
                taken = load_weights(trainer, module, best.best_model_path)
            except ConfigError as error:
                damage = f"damaged ({error.text.split('; ')[0].removesuffix('.')})"
                path = Path(best.best_model_path)
                trouble = f"{path} is {damage if path.exists() else 'gone'}"
        if best is not None and not trouble:
            measured = f", {best.monitor} {float(best.best_model_score or 0.0):.4f}"
            unseen = trainer.global_step > self._looked and not str(best.monitor).startswith("train")
            if unseen and trainer.is_global_zero:
                log.warning(
                    "%s was measured last at step %d of %d, so the model that is written has none of the "
                    "later steps: choose a %s (in batches; an epoch has %s) that divides the batches of the "
                    "run. The last weights are in %s.",
                    best.monitor,
                    self._looked,
                    trainer.global_step,
                    Option("trainer.val_check_interval"),
                    trainer.num_training_batches,
                    Path(best.best_model_path).parent,
                )
        elif best is not None and trainer.is_global_zero:
            log.warning(
                "%s, so the model of the last step is written. How often dev is measured: %s (in batches; an "
                "epoch has %s) and %s.",
                trouble,
                Option("trainer.val_check_interval"),
                trainer.num_training_batches,
                Option("trainer.check_val_every_n_epoch"),
            )
        if (name := spoiled(dict(module.model.named_parameters()))) is not None:
            raise ConfigError(
                f"the training has diverged: weights of {name} are not finite, so nothing was written to "
                f"{self.folder}. Lower {Option('model.learning_rate')}, or train in "
                f"{Option('trainer.precision', '32-true')}."
            )
        model = module.plain_model()
        if trainer.is_global_zero:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            with atomic_folder(self.folder, "config.json") as new:
                write_network(model, new)
                reset_tokenizer(module.tokenizer)
                module.tokenizer.save_pretrained(new)
                data.write_beside(new)
                beside = [] if getattr(data, "priors", None) is None else [BESIDE]
                write_json(new / TRAINING, {"stages": [*module.stages, *beside]})
            if not is_metered(trainer):
                print(f"{self.folder}: the model of step {taken:,} of {trainer.global_step:,}{measured}")

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Add a note on how to resume to the exception of a run that SIGTERM ended."""
        if isinstance(exception, SIGTERMException):
            checkpoint = kept_checkpoint(trainer)
            if checkpoint is not None:
                exception.add_note(
                    f"go on from its last checkpoint with {Option('ckpt_path', checkpoint)!s}."
                )
            else:
                exception.add_note(
                    f"nothing was saved yet ({Option('last.every_n_train_steps')!s} saves within an epoch), "
                    "so start it again."
                )
