"""The LightningModules of the two stages (arXiv 2204.13596), with the defaults of the paper."""

from __future__ import annotations

from typing import Any, Literal

from grls.models.load.build import GeneratorSpec
from grls.train.core.module import GeneratorModule


class Memorise(GeneratorModule):
    """Stage one: write a passage given its front. Defaults of the paper: Adafactor, constant 1e-5.

    Args:
        generator: The model to start from.
        learning_rate: Peak learning rate.
        schedule: Learning rate after the warm-up: ``constant``, or ``linear`` decay to zero.
        warmup: Share of all steps in which the learning rate rises (0 to 1).
        kwargs: The options of :class:`grls.train.core.module.GeneratorModule`.
    """

    def __init__(
        self,
        generator: GeneratorSpec,
        learning_rate: float = 1e-5,
        schedule: Literal["constant", "linear"] = "constant",
        warmup: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(generator, learning_rate=learning_rate, schedule=schedule, warmup=warmup, **kwargs)


class Retrieve(GeneratorModule):
    """Stage two: write the next passage given query and evidence.

    Defaults of the paper: Adafactor, 1e-4, 10 % linear warm-up, linear decay. The model to start from is
    usually that of the memorise stage.
    """
