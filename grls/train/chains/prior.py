"""Trains a generator beside a prior, as it will be decoded.

The prior's gain of each allowed token is added to the generator's logit, and the loss is taken over the
softmax of the sum: a product of experts (Hinton 2002) of which one is fixed. So the generator need not learn
what a bi-encoder or BM25 knows; it learns where they are wrong. Decode it with the same prior, weight and
temperature (``grls index hybrid … --options.normalized true``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.data.types import Query
from grls.data.words import USUAL, Analyzer
from grls.decode.prior import Masses
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.io.recipes import list_texts
from grls.models.base import Floats
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import hidden_spans, prior_over_spans
from grls.retrieve.hybrid.options import DONE_SHARE
from grls.retrieve.hybrid.priors import WeightedSource, check_priors, open_sources, prior_of
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.train.chains.examples import HopExample

_NONE = -1000.0
"""Replaces the logarithm of zero mass (nats): no share of a softmax, yet finite, so that 0 times it is 0."""


@dataclass(frozen=True)
class LearnBeside:
    """Priors for training, by name.

    Args:
        retrievers: Retriever folders of bi-encoders over the corpus, or ``bm25``.
        weights: A weight for each prior; null: 1.
        temperatures: A temperature for each prior, by which its scores are divided; null: 0.05 for a
            bi-encoder of unit vectors, 1 for other bi-encoders, 2 for BM25.
        done_share: Log-probability of DONE in priors that do not know DONE (nats).
        analyzer: How BM25 splits texts into words.
    """

    retrievers: list[str]
    weights: list[float] | None = None
    temperatures: list[float] | None = None
    done_share: float = DONE_SHARE
    analyzer: Analyzer = USUAL

    def __post_init__(self) -> None:
        list_texts(self, "retrievers")

    def open(self, corpus: Corpus, device: str) -> OpenPriors:
        """Open the priors.

        Raises:
            ConfigError: No prior is named, weights or temperatures are not one for each prior or out of
                range, or a folder holds no bi-encoder.
            MismatchError: A prior is over another corpus.
        """
        count = len(self.retrievers)
        weights = [1.0] * count if self.weights is None else self.weights
        temperatures = [None] * count if self.temperatures is None else self.temperatures
        if not count or len(weights) != count or len(temperatures) != count:
            raise ConfigError(
                "prior needs retrievers, and one weight and one temperature for each of them (or null); got "
                f"{count} retrievers, {len(weights)} weights and {len(temperatures)} temperatures."
            )
        options = SearchOptions(truncate_queries=True)
        sources = open_sources(corpus, self.retrievers, device, options, self.analyzer)
        weighed = tuple(WeightedSource(*parts) for parts in zip(sources, weights, temperatures, strict=True))
        check_priors(weighed, corpus, self.done_share)
        return OpenPriors(weighed, self.done_share)


class OpenPriors(NamedTuple):
    """Open priors with their weights.

    Attributes:
        weighed: The priors with weights and temperatures.
        done_share: Log-probability of DONE in priors that do not know DONE (nats).
    """

    weighed: tuple[WeightedSource, ...]
    done_share: float = DONE_SHARE

    def beside(self, generator: GenerativeRetriever) -> HybridRetriever:
        """The generator with its priors."""
        return HybridRetriever(generator, self.weighed, self.done_share, normalized=True)


class TrainingPrior:
    """Computes the priors' gains for the allowed tokens of hops.

    Args:
        spans: The spans that the generator writes; None: it writes passages from their beginning.
    """

    def __init__(self, priors: OpenPriors, corpus: Corpus, spans: Spans | None = None):
        self.priors = priors
        self.corpus = corpus
        self.spans = spans

    def open(self, index: ConstraintIndex, hops: Sequence[HopExample]) -> HopMasses:
        """The priors' masses for a batch of hops."""
        numbers = np.array([n for n, hop in enumerate(hops) if hop.query], dtype=np.int64)
        queried = [hops[n] for n in numbers.tolist()]
        prior = prior_of(
            self.priors.weighed,
            [Query(str(n), hop.query) for n, hop in zip(numbers.tolist(), queried, strict=True)],
            [self.corpus.passages(hop.evidence) for hop in queried],
            len(self.corpus),
            self.priors.done_share,
            normalized=True,
        )
        # All passages but the evidence may be retrieved, as in the search. A gold passage with the text of
        # evidence stays: without a mass, its loss would be hundreds of nats that nothing can be learned from.
        rows, spans = index.rows, self.spans
        if spans is None:
            gold = [{int(rows.row_of[passage]) for passage in hop.gold} for hop in queried]
            hidden = [
                [passage for passage in hop.evidence if int(rows.row_of[passage]) not in right]
                for hop, right in zip(queried, gold, strict=True)
            ]
        else:  # spans that another passage holds as well are not hidden
            prior = prior_over_spans(prior, spans)
            hidden = [
                hidden_spans(spans, rows, [passage for passage in hop.evidence if passage not in hop.gold])
                for hop in queried
            ]
        masses = prior.open(index, Scope(index, len(queried), hidden), len(queried))
        masses.load(np.arange(len(numbers)), np.arange(len(numbers)))
        slots = np.full(len(hops), -1)
        slots[numbers] = np.arange(len(numbers))
        return HopMasses(masses, slots)


class HopMasses(NamedTuple):
    """The priors' masses for hops.

    Attributes:
        masses: The masses of hops with a query.
        slots: ``[hops]`` index of each hop in ``masses``; -1: the hop has no query.
    """

    masses: Masses
    slots: Ints

    def gains(self, hops: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` the gain of each allowed token (nats); 0 for hops without a query.

        Args:
            hops: ``[D]`` the hop of each decision.
            states: ``[A]`` states of the allowed tokens.
            offsets: ``[D + 1]`` range of each decision's allowed tokens.
        """
        sizes = np.diff(offsets)
        known = self.slots[hops] >= 0
        queried = np.repeat(known, sizes)
        bounds = np.concatenate(([0], np.cumsum(sizes[known])))
        gains = np.zeros(len(states))
        # A token that leads only to evidence has no mass; beyond it, no token has.
        with np.errstate(divide="ignore", invalid="ignore"):
            slots = np.repeat(self.slots[hops], sizes)[queried]
            of_prior = self.masses.gains(slots, states[queried], bounds)
        gains[queried] = np.where(np.isfinite(of_prior), of_prior, _NONE)
        return gains
