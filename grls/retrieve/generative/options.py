"""How a generative retriever decodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from grls.data.types import ScoreMode
from grls.errors import ConfigError


@dataclass(frozen=True)
class SearchOptions:
    """How passages are decoded.

    Args:
        beams: Beam width.
        mode: Score mode: ``renormalized`` over the allowed tokens, or ``full`` over the vocabulary.
        early_stop: Stop at the unique prefix; None means where it is exact (``renormalized``).
        batch_size: Model inputs decoded together (slots of the fast search).
        truncate_queries: Cut queries longer than the limit instead of refusing them.
        span_temperature: For a generator that writes spans: T, the larger the more it counts that many spans
            of a passage are likely, and not one alone (:mod:`grls.retrieve.generative.span_scores`).
        rescore: How many of the best passages of each input the generator reads to their end and rescores
            (:mod:`grls.models.rescore_spec`), which ranks them anew; 0: none. For a model that has learned
            to.
        rescore_weight: What a rescore (nats) counts beside the score.
        compile: Take the search for GPUs (wherever the model is), its whole step compiled and, on a GPU,
            replayed as a CUDA graph. The first queries wait for the compiler, from seconds to minutes for
            each of a few sizes, and later ones are faster: for thousands of queries on a GPU. It needs the
            index backend ``array`` in one segment, and a model whose decoder can be driven by slots (T5, not
            BART).

    Raises:
        ConfigError: A count or the temperature is not positive, the score mode is unknown, or the weight is
            no finite number.
    """

    beams: int = 10
    mode: ScoreMode = "renormalized"
    early_stop: bool | None = None
    batch_size: int = 32
    truncate_queries: bool = False
    span_temperature: float = 3.0
    compile: bool = False
    rescore: int = 0
    rescore_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in get_args(ScoreMode):
            known = ", ".join(get_args(ScoreMode))
            raise ConfigError(f"unknown score mode {self.mode!r}; expected one of {known}.")
        for name in ("beams", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 1e-3 <= self.span_temperature <= 1e6:
            raise ConfigError(
                f"span_temperature must be from 0.001 to 1,000,000, got {self.span_temperature}."
            )
        if self.rescore < 0 or not math.isfinite(self.rescore_weight):
            raise ConfigError(
                "rescore must not be negative and rescore_weight a finite number, got "
                f"{self.rescore} and {self.rescore_weight}."
            )


USUAL_SEARCH = SearchOptions()
