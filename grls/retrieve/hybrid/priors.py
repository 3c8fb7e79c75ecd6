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
from typing import NamedTuple, Protocol

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import USUAL, Analyzer
from grls.decode.prior import Fixed, LogWeights, Prior, WeightedPrior
from grls.decode.score_all import score_rows
from grls.errors import ConfigError, MismatchError
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.io.locks import exclusive
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.base import Retriever, ScoresAll
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.options import DONE_SHARE
from grls.retrieve.registry import Opening, load_named


class PriorSource(Protocol):
    """Scores of all passages.

    ``temperature`` is the default T; with ``knows_done`` DONE is scored as a passage after the last one.
    """

    name: str
    temperature: float
    knows_done: bool

    @property
    def corpus(self) -> Corpus: ...

    def fingerprint(self) -> str: ...

    def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> LogWeights:
        """Prepare the scores of Q queries, each given its evidence so far.

        Returns:
            A function from n numbers of these queries to their scores, ``[n, N]``, or ``[n, N + 1]`` with
            DONE. It is called for a few queries at a time, so that memory holds only their scores.
        """
        ...


class RetrieverPrior:
    """The scores of a retriever that scores all passages (:class:`~grls.retrieve.base.ScoresAll`)."""

    def __init__(self, retriever: Retriever, name: str = ""):
        if not isinstance(retriever, ScoresAll):
            raise ConfigError(
                f"{name or retriever.kind} ({retriever.kind}) does not score all passages, so it cannot be a "
                "prior, a teacher or a source of proposals; take a folder of kind dense, sparse or "
                "multi-vector, or bm25."
            )
        self.retriever, self.corpus = retriever, retriever.corpus
        self.name = name or retriever.kind
        self.temperature, self.knows_done = retriever.temperature, retriever.scores_done
        self.least_score = retriever.least_score
        self.fingerprint = retriever.fingerprint
        self._scores = retriever.scores

    def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> LogWeights:
        return self._scores(queries, evidence)


class EmptyPromptPrior:
    """The log-probability of each passage under an empty prompt (nats, ``renormalized``).

    It has a negative weight, against passages that a generator favours for any query since it has seen them
    as answers. The index is walked once, at the first request, and again after it has changed.
    """

    name = "empty prompt"
    temperature = 1.0
    knows_done = False

    def __init__(self, retriever: GenerativeRetriever):
        self._retriever = retriever
        self._cached: tuple[ConstraintIndex, Floats] | None = None

    @property
    def corpus(self) -> Corpus:
        return self._retriever.corpus

    def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> LogWeights:
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

    def __init__(self, source: PriorSource):
        self._source, self.corpus, self.name = source, source.corpus, source.name
        self.temperature, self.knows_done = source.temperature, source.knows_done
        self.fingerprint = source.fingerprint
        self._cached: tuple[object, LogWeights] | None = None

    def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> LogWeights:
        request = tuple(queries), tuple(tuple(passages) for passages in evidence)
        last = self._cached  # read once: another thread may replace it
        if last is None or last[0] != request:
            last = self._cached = request, self._source.ask(queries, evidence)
        return last[1]


def open_sources(
    corpus: Corpus,
    names: Sequence[str],
    device: str = "auto",
    options: SearchOptions | None = None,
    analyzer: Analyzer = USUAL,
) -> list[RetrieverPrior]:
    """Folders are opened in float32."""
    search = replace(options or SearchOptions(), rescore=0, compile=False)
    opening = Opening(device, search=search, corpus=corpus)
    return [RetrieverPrior(load_named(name, corpus, opening, analyzer), name) for name in names]


class WeightedSource(NamedTuple):
    """A source and its weight w (negative: the prior is subtracted).

    ``temperature`` is the T by which scores are divided; None: the default of the source.
    """

    source: PriorSource
    weight: float
    temperature: float | None = None

    @property
    def divisor(self) -> float:
        return self.source.temperature if self.temperature is None else self.temperature


def check_priors(priors: Sequence[WeightedSource], corpus: Corpus, done_share: float) -> None:
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


def prior_of(
    priors: Sequence[WeightedSource],
    queries: Sequence[Query],
    evidence: Sequence[Sequence[Passage]],
    done: int,
    done_share: float = DONE_SHARE,
    normalized: bool = False,
) -> Prior:
    """The prior of the search for Q queries, from sources.

    Sources of weight 0 have no effect. ``done`` is the number of DONE, which follows the last passage;
    sources that do not know it give it the log-probability ``done_share``. ``normalized``: see
    :class:`~grls.decode.prior.Prior`.
    """

    def log_weights(scores: LogWeights, prior: WeightedSource, numbers: Ints) -> Floats:
        """Scores as log-weights of all passages of the index, DONE last."""
        weights = np.asarray(scores(numbers), dtype=np.float64) / prior.divisor
        return weights if prior.source.knows_done else np.pad(weights, ((0, 0), (0, 1)))

    parts = []
    for prior in priors:
        if prior.weight:
            known = prior.source.knows_done
            weights = partial(log_weights, prior.source.ask(queries, evidence), prior)
            parts.append(WeightedPrior(weights, prior.weight, None if known else Fixed(done, done_share)))
    return Prior(tuple(parts), normalized)
