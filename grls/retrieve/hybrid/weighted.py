"""Sources with weights, and the prior of the search that they make together.

Legend: Q queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.prior import Fixed, LogWeights, Prior, WeightedPrior
from grls.errors import ConfigError, MismatchError, bounded
from grls.index.rows import Ints
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.hybrid.options import DONE_SHARE
from grls.retrieve.hybrid.priors import PriorSource


class WeightedSource(NamedTuple):
    """A source and its weight.

    Attributes:
        source: The scores of all passages.
        weight: The weight w; a negative weight subtracts the prior.
        temperature: The temperature T, by which scores are divided; None: the default of the source.
    """

    source: PriorSource
    weight: float
    temperature: float | None = None

    @property
    def divisor(self) -> float:
        """The temperature T."""
        return self.source.temperature if self.temperature is None else self.temperature


def check_priors(priors: Sequence[WeightedSource], corpus: Corpus, done_share: float) -> None:
    """Refuse priors that cannot be used.

    Args:
        priors: The priors.
        corpus: The corpus of the generator.
        done_share: See :func:`prior_of`.

    Raises:
        ConfigError: A weight, temperature or share cannot be used.
        MismatchError: A prior is over another corpus.
    """
    for source, weight, _ in priors:
        if not math.isfinite(weight):
            raise ConfigError(f"the weight of {source.name} must be a finite number, got {weight}.")
        if source.corpus.fingerprint != corpus.fingerprint:
            raise MismatchError(
                f"{source.name} is over {source.corpus.source} ({counted(len(source.corpus), 'passage')}) "
                f"and the generator over {corpus.source} ({len(corpus):,}); make both from the same "
                "corpus.jsonl."
            )
    for prior in priors:
        if not 0 < prior.divisor < math.inf:
            raise ConfigError(f"the temperature of {prior.source.name} must be above 0, got {prior.divisor}.")
    bounded("(-inf, 0)", done_share=done_share)


def prior_of(
    priors: Sequence[WeightedSource],
    queries: Sequence[Query],
    evidence: Sequence[Sequence[Passage]],
    done: int,
    done_share: float = DONE_SHARE,
    normalized: bool = False,
) -> Prior:
    """The prior of the search for Q queries, from sources.

    Args:
        priors: The sources; those of weight 0 are not asked.
        queries: The queries.
        evidence: The evidence of each query so far.
        done: The number of DONE in the index, which follows the last passage.
        done_share: Log-probability of DONE in sources that do not know DONE (nats).
        normalized: See :class:`~grls.decode.prior.Prior`.
    """
    parts = []
    for prior in priors:
        if prior.weight:
            scores = prior.source.ask(queries, evidence)
            known = prior.source.knows_done
            weights = _LogWeights(scores, prior.divisor, known)
            parts.append(WeightedPrior(weights, prior.weight, None if known else Fixed(done, done_share)))
    return Prior(tuple(parts), normalized)


@dataclass(frozen=True)
class _LogWeights:
    """Scores as log-weights of all passages of the index, DONE last."""

    scores: LogWeights
    temperature: float
    knows_done: bool

    def __call__(self, queries: Ints) -> Floats:
        weights = np.asarray(self.scores(queries), dtype=np.float64) / self.temperature
        return weights if self.knows_done else np.pad(weights, ((0, 0), (0, 1)))
