"""The stages that LightningCLI trains, by name. The module is light to import."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class TrainingStage(NamedTuple):
    """The classes of a stage.

    Attributes:
        model: Path of its LightningModule.
        data: Path of its LightningDataModule.
        measured: Option groups of callbacks that measure on dev or mine negatives -> path of the callback.
        options: Default options of the stage; options of the command line override them.
    """

    model: str
    data: str
    measured: Mapping[str, str] = MappingProxyType({})
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments that precede those of the command line."""
        return [f"--model={self.model}", f"--data={self.data}", *self.options]


_RECALL = {"recall": "grls.train.stages.callbacks.ConstrainedRecall"}

STAGES = {
    "memorise": TrainingStage(
        "grls.train.stages.module.Memorise", "grls.train.stages.data.MemoriseData", _RECALL
    ),
    "retrieve": TrainingStage(
        "grls.train.stages.module.Retrieve", "grls.train.stages.data.RetrieveData", _RECALL
    ),
    "chains": TrainingStage(
        "grls.train.chains.module.RetrieveChains",
        "grls.train.chains.data.ChainData",
        {**_RECALL, "mine": "grls.train.chains.mining.MineNegatives"},
    ),
    "riches": TrainingStage(
        "grls.train.riches.module.Interlace",
        "grls.train.riches.data.InterlacedData",
        {"quotes": "grls.train.riches.callbacks.QuoteRecall"},
    ),
    "doc2query": TrainingStage(
        "grls.train.doc2query.module.WriteQueries",
        "grls.train.doc2query.data.QueryData",
        options=("--checkpoint.monitor=dev_loss", "--checkpoint.mode=min"),
    ),
}
