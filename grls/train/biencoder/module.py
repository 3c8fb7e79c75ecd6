"""The LightningModule of a bi-encoder."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor

from grls.errors import ConfigError
from grls.models.biencoder import STAGE, BiEncoderModel
from grls.models.load.sentence_folder import MODULES, modules_of
from grls.models.sentence_model import COSINE
from grls.train.biencoder.data import PairBatch
from grls.train.biencoder.dev import HopEvaluator, dev_metric
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.core.module import EncoderModule
from grls.train.core.processes import averaged, is_first, layers_of
from grls.train.core.trainer import is_metered
from grls.train.options import BiEncoderOptions


class BiEncoderModule(EncoderModule):
    """A bi-encoder, which is trained in place for ``steps`` optimizer steps, and its measurement on dev.

    ``done``: it learns DONE.
    """

    marker = MODULES
    best: ClassVar[Any] = {"monitor": "dev_recall", "mode": "max", "finer": ("dev_ndcg", "max")}

    def __init__(
        self,
        encoder: BiEncoderModel,
        options: BiEncoderOptions,
        steps: int,
        evaluator: HopEvaluator | None,
        done: bool,
    ):
        super().__init__(encoder.model, options, options.optimizer)
        self.steps = steps
        self._encoder = encoder
        self._evaluator = evaluator
        self._done = done
        if options.strategy != "ddp":
            layers_of(self.model)
            for name, weights in self.model.named_parameters():
                if ".pooler." in name:  # no embedding uses it, and shards keep no state of it
                    weights.requires_grad = False
        scale = options.scale
        if scale is None:
            normalised = any(isinstance(module, Normalize) for module in modules_of(self.model))
            scale = 20.0 if encoder.similarity == COSINE or normalised else 1.0
        widest = max(options.matryoshka or (0,))
        if widest > encoder.dimension:
            raise ConfigError(
                f"fit.matryoshka: the embeddings have {encoder.dimension} dimensions, got {widest}: give "
                f"{encoder.dimension} at most."
            )
        # A tuple: its weights are those of the model.
        self._loss = (MaskedRankingLoss(self.model, scale, encoder.scores, options),)

    def plain_copy(self) -> Any:
        model = deepcopy(self.model)
        model.model_card_data.model = model  # else the card of the copy is that of the shards
        return model

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        loss = self.within(self._loss[0], *batch)
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        assert self._evaluator is not None
        with self.whole_weights():
            measures: dict[str, float] = self._evaluator(self.model)
        recall = dev_metric(self.options.k)
        for name, key in (("dev_recall", recall), ("dev_ndcg", recall.replace("recall@", "ndcg@"))):
            self.log(name, measures[key], batch_size=1, sync_dist=False)
        if is_first() and not is_metered(self.trainer):
            step = f"epoch {self.current_epoch + 1}, step {self.global_step}/{self.steps}"
            print(f"{step}: dev recall@{self.options.k} {measures[recall]:.4f}", flush=True)

    def configure_optimizers(self) -> Any:
        return self.optimizer_and_schedule(self.options, self.steps)

    def save(self, model: Any, folder: Path) -> None:
        encoder = self._encoder
        encoder.model, encoder.stages, encoder.learned_done = model, (*encoder.stages, STAGE), self._done
        encoder.save(folder)
