"""Sources of priors: a bi-encoder or BM25.

Legend: Q queries, N passages of the corpus, n of the queries.

A source scores every passage for a query and its evidence. The prior is the softmax over passages of the
scores divided by a temperature T. So a finished passage gains weight / T times its score (and a constant). T
decides the gain of a prefix: with a small T it is that of its best passage, with a large T it grows with the
number of its passages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.decode.prior import Fixed, Prior, WeightedPrior
from grls.errors import ConfigError, MismatchError
from grls.index.rows import Ints
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.base import AllScores, Evidence, Retriever, ScoresAll
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.registry import Opening, load_named

DONE_SHARE = math.log(0.5)
"""Log-probability of DONE in a prior that does not know DONE (nats): that of all passages together."""


def scoring(retriever: Retriever, name: str = "") -> ScoresAll:
    """The retriever, which must score all passages; errors call it ``name``, or else by its kind."""
    if not isinstance(retriever, ScoresAll):
        raise ConfigError(
            f"{name or retriever.kind} ({retriever.kind}) does not score all passages, so it cannot be a "
            "prior, a teacher or a source of proposals; take a folder of kind dense, sparse or "
            "multi-vector, or bm25."
        )
    return retriever


class Remembering:
    """Caches the scores of the last request, for the same queries with another weight."""

    def __init__(self, source: ScoresAll):
        self._source, self.corpus, self.kind = source, source.corpus, source.kind
        self.temperature, self.scores_done = source.temperature, source.scores_done
        self.least_score, self.fingerprint = source.least_score, source.fingerprint
        self._cached: tuple[object, AllScores] | None = None

    def scores(self, queries: Sequence[Query], evidence: Evidence = ()) -> AllScores:
        request = tuple(queries), tuple(tuple(passages) for passages in evidence)
        last = self._cached  # read once: another thread may replace it
        if last is None or last[0] != request:
            last = self._cached = request, self._source.scores(queries, evidence)
        return last[1]


def open_sources(
    corpus: Corpus,
    names: Sequence[str],
    device: str = "auto",
    options: SearchOptions | None = None,
) -> list[ScoresAll]:
    """Folders are opened in float32."""
    search = replace(options or SearchOptions(), rescore=0, compile=False)
    opening = Opening(device, search=search, corpus=corpus)
    return [scoring(load_named(name, corpus, opening), name) for name in names]


class WeightedSource(NamedTuple):
    """A source and its weight w.

    ``temperature`` is the T by which scores are divided; None: the default of the source. ``called`` is its
    name; empty: its kind.
    """

    source: ScoresAll
    weight: float
    temperature: float | None = None
    called: str = ""

    @property
    def name(self) -> str:
        return self.called or self.source.kind

    @property
    def divisor(self) -> float:
        return self.source.temperature if self.temperature is None else self.temperature


def check_priors(priors: Sequence[WeightedSource], corpus: Corpus) -> None:
    for prior in priors:
        source = prior.source
        if not 0 <= prior.weight < math.inf:
            raise ConfigError(
                f"the weight of {prior.name} must be a finite number of at least 0, got {prior.weight}."
            )
        if source.corpus.fingerprint != corpus.fingerprint:
            raise MismatchError(
                f"{prior.name} is over {source.corpus.source} ({counted(len(source.corpus), 'passage')}) "
                f"and the generator over {corpus.source} ({len(corpus):,}); make both from the same "
                "corpus.jsonl."
            )
    for prior in priors:
        if not 0 < prior.divisor < math.inf:
            raise ConfigError(f"the temperature of {prior.name} must be above 0, got {prior.divisor}.")


def prior_of(
    priors: Sequence[WeightedSource],
    queries: Sequence[Query],
    evidence: Evidence,
    done: int,
    normalized: bool = False,
) -> Prior:
    """The prior of the search for Q queries, from sources.

    Sources of weight 0 have no effect. ``done`` is the number of DONE, which follows the last passage;
    sources that do not know it give it as much as all passages together. ``normalized``: see
    :class:`~grls.decode.prior.Prior`.
    """

    def log_weights(scores: AllScores, prior: WeightedSource, numbers: Ints) -> Floats:
        """Scores as log-weights of all passages of the index, DONE last."""
        weights = np.asarray(scores(numbers), dtype=np.float64) / prior.divisor
        return weights if prior.source.scores_done else np.pad(weights, ((0, 0), (0, 1)))

    parts = []
    for prior in priors:
        if prior.weight:
            known = prior.source.scores_done
            weights = partial(log_weights, prior.source.scores(queries, evidence), prior)
            parts.append(WeightedPrior(weights, prior.weight, None if known else Fixed(done, DONE_SHARE)))
    return Prior(tuple(parts), normalized)
