"""Sources of priors: a bi-encoder, BM25, or the generator under an empty prompt.

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
from grls.decode.score_all import score_rows
from grls.errors import ConfigError, MismatchError
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.io.locks import exclusive
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.base import AllScores, Evidence, Retriever, ScoresAll
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
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


class EmptyPromptPrior:
    """The log-probability of each passage under an empty prompt (nats, ``renormalized``).

    It has a negative weight, against passages that a generator favours for any query since it has seen them
    as answers. The index is walked once, at the first request, and again after it has changed.
    """

    kind = "empty prompt"
    temperature = 1.0
    scores_done = False
    least_score = -math.inf

    def __init__(self, retriever: GenerativeRetriever):
        self._retriever = retriever
        self._cached: tuple[ConstraintIndex, Floats] | None = None

    @property
    def corpus(self) -> Corpus:
        return self._retriever.corpus

    def scores(self, queries: Sequence[Query], evidence: Evidence = ()) -> AllScores:
        weights = self.log_probabilities()

        def scores(numbers: Ints) -> Floats:
            return np.broadcast_to(weights, (len(numbers), len(weights)))

        return scores

    def fingerprint(self) -> str:
        return f"empty prompt of {self._retriever.fingerprint()}"

    def log_probabilities(self) -> Floats:
        """``[N]`` log-probability of every passage, of all its spans together; passages of equal tokens share
        that of their row evenly.
        """
        retriever = self._retriever
        with exclusive(retriever.model):
            if self._cached is None or self._cached[0] is not retriever.index:
                index, rows = retriever.index, retriever.index.rows
                retriever.model.eval()
                scores = score_rows(retriever.decoder(1).generator, index, retriever.codec.model_input([]))
                scores = scores - np.log(np.diff(rows.members_before(np.arange(len(rows) + 1))))
                scores = scores[rows.row_of.astype(np.int64)][:-1]
                if retriever.spans is not None:
                    scores = np.logaddexp.reduceat(scores, retriever.spans.offsets[:-1])
                self._cached = index, scores
            return self._cached[1]


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
    """A source and its weight w (negative: the prior is subtracted).

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
        if not math.isfinite(prior.weight):
            raise ConfigError(f"the weight of {prior.name} must be a finite number, got {prior.weight}.")
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
