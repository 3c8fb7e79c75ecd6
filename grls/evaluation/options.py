"""Options for scoring answers. The module is cheap to import, because command lines need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import at_least
from grls.io.recipes import rare

PremiseKind = Literal["quotes", "passages"]


@dataclass(frozen=True)
class AutoAISOptions:
    """How a model judges whether evidence supports an answer.

    Args:
        model: Folder or hub name of a model of entailment: a classifier with a label `entailment`, or an
            encoder-decoder that writes 1 or 0; null: no AutoAIS.
        premise: The evidence: the quotes, or the passages that hold them.
        batch_size: Pairs judged together.
    """

    model: str | None = None
    premise: PremiseKind = rare("quotes")
    batch_size: int = rare(16)

    def __post_init__(self) -> None:
        at_least(1, "autoais.", batch_size=self.batch_size)
