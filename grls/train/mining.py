"""Passages that the search finds wrongly, for the margin loss: mined anew as training goes on.

Learning to rank in generative retrieval (LTRGR, arXiv 2306.15222) holds the right passage against those that
constrained beam search returns before it. They are those of the model as it is, so they are searched for at
the beginning of epochs, for the very hops that the epoch will train. Like the measurement on dev this reaches
the search, in a callback.
"""

from __future__ import annotations

import random
from typing import Any

import lightning as L

from grls.errors import ConfigError
from grls.retrieve.generative import GenerativeRetriever, SearchOptions
from grls.train.chain_collate import ChainCollator
from grls.train.chains import HopExample


class MineNegatives(L.Callback):
    """Searches for the hops of some training queries at the beginning of epochs.

    Args:
        passages: Wrong passages kept for a hop; 0 mines nothing.
        queries: Training queries searched for, drawn anew each time; the others have no margin loss. Null
            takes all.
        first_epoch: The first epoch with a margin loss: a model must have learned something to be wrong.
        every_n_epochs: What was found for an epoch is of use in that epoch alone, so between there is none.
        beams: Beam width.
        batch_size: Inputs decoded together.

    Raises:
        ConfigError: A count is out of range.
    """

    def __init__(
        self,
        passages: int = 0,
        queries: int | None = None,
        first_epoch: int = 1,
        every_n_epochs: int = 1,
        beams: int = 10,
        batch_size: int = 32,
    ):
        if passages < 0 or every_n_epochs < 1 or (queries is not None and queries < 1):
            raise ConfigError(
                "mine: passages must not be negative, queries and every_n_epochs at least 1; got "
                f"{passages}, {queries} and {every_n_epochs}."
            )
        self.passages = passages
        self.queries = queries
        self.first_epoch = first_epoch
        self.every_n_epochs = every_n_epochs
        self.options = SearchOptions(beams=max(beams, passages), batch_size=batch_size)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse options that would do nothing.

        Raises:
            ConfigError: Passages are mined without a margin loss, or the other way round.
        """
        if stage != "fit":
            return
        margin = getattr(pl_module, "margin", 0.0)
        if bool(margin) != bool(self.passages):
            raise ConfigError(
                "a margin loss needs both --model.margin and --mine.passages above 0, got "
                f"{margin} and {self.passages}."
            )

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Search, and hand over what is wrong."""
        epoch = trainer.current_epoch
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if not self.passages:
            return
        module: Any = pl_module
        collator: ChainCollator = data.collator
        collator.teaching.negatives = {}
        if epoch < self.first_epoch or (epoch - self.first_epoch) % self.every_n_epochs:
            return
        training = module.model.training
        hops = self._hops(data.train_examples, epoch)
        retriever = GenerativeRetriever(module.model, data.codec, data.corpus, data.index, self.options)
        # The gold passages of a hop and its evidence are no wrong answers.
        barred = [[*hop.gold, *hop.evidence] for hop in hops]
        found = retriever.search([hop.source for hop in hops], self.passages, barred, "mine")
        collator.teaching.negatives = {
            hop.seed: tuple(hit.passage for hit in some) for hop, some in zip(hops, found, strict=True)
        }
        module.model.train(training)

    def _hops(self, examples: Any, epoch: int) -> list[HopExample]:
        """The hops of the chains that are searched for, as they are in an epoch."""
        numbers = range(len(examples))
        if self.queries is not None and self.queries < len(examples):
            numbers = random.Random(f"mine-{epoch}").sample(numbers, self.queries)  # type: ignore[assignment]
        return [hop for number in numbers for hop in examples.draw(number, epoch).hops]
