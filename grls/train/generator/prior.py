"""Trains a generator beside a prior, as it will be decoded.

The prior's gain of each allowed token is added to the generator's logit, and the loss is taken over the
softmax of the sum: a product of experts (Hinton 2002) of which one is fixed. So the generator need not
learn what a bi-encoder or BM25 knows; it learns where they are wrong. Decode it with the same prior,
weight and temperature (``grls index hybrid … --hybrid.normalized true``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifiers
from grls.data.types import Query
from grls.decode.prior import Masses
from grls.decode.scope import Scope
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import hidden_spans, prior_over_spans
from grls.retrieve.hybrid.priors import WeightedSource, check_priors, open_sources, prior_of
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.train.generator.decisions import Gains
from grls.train.generator.examples import HopExample
from grls.train.options import LearnBeside

_NONE = -1000.0
"""Replaces the logarithm of zero mass (nats): no share of a softmax, yet finite, so that 0 times it is 0."""


def open_priors(
    prior: LearnBeside, corpus: Corpus, device: str, spans: Identifiers | None = None
) -> OpenPriors:
    """Open the priors, for a generator that writes one of several ``spans`` of a passage, or one sequence."""
    options = SearchOptions(truncate_queries=True)
    sources = open_sources(corpus, prior.retrievers, device, options)
    parts = zip(sources, prior.weights or [1.0] * len(sources), prior.retrievers, strict=True)
    weighed = tuple(WeightedSource(source, weight, None, name) for source, weight, name in parts)
    check_priors(weighed, corpus)
    return OpenPriors(weighed, corpus, spans)


class OpenPriors(NamedTuple):
    """Open priors with weights.

    ``spans``: the identifiers that the generator writes, if a passage has several; None: it has one.
    """

    weighed: tuple[WeightedSource, ...]
    corpus: Corpus
    spans: Identifiers | None

    def beside(self, generator: GenerativeRetriever) -> HybridRetriever:
        return HybridRetriever(generator, self.weighed, normalized=True)

    def gains(self, index: ConstraintIndex, hops: Sequence[HopExample]) -> Gains:
        """The gains for the allowed tokens of a batch of hops; 0 for hops without a query."""
        numbers = np.array([n for n, hop in enumerate(hops) if hop.query], dtype=np.int64)
        queried = [hops[n] for n in numbers.tolist()]
        prior = prior_of(
            self.weighed,
            [Query(str(n), hop.query) for n, hop in zip(numbers.tolist(), queried, strict=True)],
            [self.corpus.passages(hop.evidence) for hop in queried],
            len(self.corpus),
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
        masses = Masses(prior, index, Scope(index, len(queried), hidden), len(queried))
        masses.load(np.arange(len(numbers)))
        slots = np.full(len(hops), -1)  # the index of each hop among the masses
        slots[numbers] = np.arange(len(numbers))

        def gained(hops: Ints, states: Ints, offsets: Ints) -> Floats:
            sizes = np.diff(offsets)
            known = slots[hops] >= 0
            asked = np.repeat(known, sizes)
            bounds = np.concatenate(([0], np.cumsum(sizes[known])))
            gains = np.zeros(len(states))
            # A token that leads only to evidence has no mass; beyond it, no token has.
            with np.errstate(divide="ignore", invalid="ignore"):
                of_prior = masses.gains(np.repeat(slots[hops], sizes)[asked], states[asked], bounds)
            gains[asked] = np.where(np.isfinite(of_prior), of_prior, _NONE)
            return gains

        return gained
