"""A prior beside which a generator learns, as it will be decoded beside it.

The generator's logits are added to what the prior says of each allowed token, and the loss is that of the
softmax of the sum: a product of experts (Hinton 2002) of which one is given. So the generator need not learn
what a bi-encoder or BM25 knows, and learns where they are wrong. Decode it with the same prior, weight and
temperature (``grls retrieve --prior … --prior_normalized true``).
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
from grls.models.base import Floats
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import hidden_spans, prior_over_spans
from grls.retrieve.hybrid.options import DONE_SHARE
from grls.retrieve.hybrid.priors import open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource, check_priors, prior_of
from grls.train.chains.examples import HopExample

_NONE = -1000.0
"""In place of the logarithm of no mass (nats): no share of a softmax, and finite, so that 0 times it is 0."""


@dataclass(frozen=True)
class LearnBeside:
    """Priors by name.

    Args:
        retrievers: Folders of bi-encoders over the corpus (``grls index MODEL --kind dense``), or ``bm25``.
        weights: One each; null: 1.
        temperatures: What the scores of each are divided by; null: 0.05 for a bi-encoder of unit vectors, 1
            for another, 2 for BM25.
        done_share: Log of DONE's share of priors that do not know it (nats).
        analyzer: How BM25 splits texts into words.
    """

    retrievers: list[str]
    weights: list[float] | None = None
    temperatures: list[float] | None = None
    done_share: float = DONE_SHARE
    analyzer: Analyzer = USUAL

    def open(self, corpus: Corpus, device: str) -> OpenPriors:
        """Open them.

        Raises:
            ConfigError: None is named, there are not as many weights or temperatures, one of them cannot be
                used, or a folder holds no bi-encoder.
            MismatchError: A prior is over another corpus.
        """
        count = len(self.retrievers)
        weights = [1.0] * count if self.weights is None else self.weights
        temperatures = [None] * count if self.temperatures is None else self.temperatures
        if not count or len(weights) != count or len(temperatures) != count:
            raise ConfigError(
                "prior needs retrievers, and a weight and a temperature for each where they are given; got "
                f"{count}, {len(weights)} and {len(temperatures)}."
            )
        options = SearchOptions(truncate_queries=True)
        sources = open_sources(corpus, self.retrievers, device, options, self.analyzer)
        weighed = tuple(WeightedSource(*some) for some in zip(sources, weights, temperatures, strict=True))
        check_priors(weighed, corpus, self.done_share)
        return OpenPriors(weighed, self.done_share)


class OpenPriors(NamedTuple):
    """What a generator is to be decoded with.

    Attributes:
        weighed: The priors with their weights.
        done_share: Log of DONE's share of priors that do not know it (nats).
    """

    weighed: tuple[WeightedSource, ...]
    done_share: float = DONE_SHARE

    def beside(self, generator: GenerativeRetriever) -> HybridRetriever:
        """The generator with its priors."""
        return HybridRetriever(generator, self.weighed, self.done_share, normalized=True)


class TrainingPrior:
    """What priors add to the allowed tokens of hops.

    Args:
        priors: The priors.
        corpus: The corpus of the generator.
        spans: What it writes of passages, where it does not write them from their beginning.
    """

    def __init__(self, priors: OpenPriors, corpus: Corpus, spans: Spans | None = None):
        self.priors = priors
        self.corpus = corpus
        self.spans = spans

    def open(self, index: ConstraintIndex, hops: Sequence[HopExample]) -> HopMasses:
        """What the priors say of some hops."""
        asked = np.array([n for n, hop in enumerate(hops) if hop.query], dtype=np.int64)
        prior = prior_of(
            self.priors.weighed,
            [Query(str(n), hops[n].query) for n in asked.tolist()],
            [self.corpus.passages(hops[n].evidence) for n in asked.tolist()],
            len(self.corpus),
            self.priors.done_share,
            normalized=True,
        )
        if self.spans is not None:
            prior = prior_over_spans(prior, self.spans)
        masses = prior.open(index, self._scope(index, [hops[n] for n in asked.tolist()]), len(asked))
        masses.load(np.arange(len(asked)), np.arange(len(asked)))
        places = np.full(len(hops), -1)
        places[asked] = np.arange(len(asked))
        return HopMasses(masses, places)

    def _scope(self, index: ConstraintIndex, hops: Sequence[HopExample]) -> Scope:
        """What each hop may find: as in the search, not what is evidence already."""
        spans = self.spans
        if spans is None:
            return Scope(index, len(hops), [hop.evidence for hop in hops])
        return Scope(index, len(hops), [hidden_spans(spans, index.rows, hop.evidence) for hop in hops])


class HopMasses(NamedTuple):
    """What priors say of hops.

    Attributes:
        masses: Of the hops that have a query.
        places: ``[hops]`` where each stands among them; -1: it has none.
    """

    masses: Masses
    places: Ints

    def gains(self, hops: Ints, states: Ints, offsets: Ints) -> Floats:
        """``[A]`` what they add to each allowed token (nats); 0 for hops without the text of a query.

        Args:
            hops: ``[D]`` the hop of each decision.
            states: ``[A]`` of the allowed tokens.
            offsets: ``[D + 1]`` which of them each decision has.
        """
        sizes = np.diff(offsets)
        known = self.places[hops] >= 0
        some = np.repeat(known, sizes)
        bounds = np.concatenate(([0], np.cumsum(sizes[known])))
        gains = np.zeros(len(states))
        # What leads to evidence alone has no mass; where nothing else follows (gold with the text of
        # evidence), no token has.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.masses.gains(np.repeat(self.places[hops], sizes)[some], states[some], bounds)
        gains[some] = np.where(np.isfinite(found), found, _NONE)
        return gains
