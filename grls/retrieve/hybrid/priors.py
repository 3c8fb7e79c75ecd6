"""What priors of the search know passages from: a bi-encoder, BM25, or the generator under an empty prompt.

Legend: Q queries, N passages of the corpus, n queries that are asked together, d embedding dimension.

A source gives every passage a score for a query and the passages found so far. Divided by a temperature T,
the softmax over passages makes a prior of it, so a finished passage gains weight / T times its score (and a
constant); T alone says what a prefix is worth: as much as its best passage where T is small, the more the
more passages it has where T is large. How priors enter the search is :mod:`grls.decode.prior`'s affair, which
retriever they make, :mod:`grls.retrieve.hybrid.retriever`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.prior import LogWeights
from grls.decode.score_all import score_rows
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.turns import turn
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense.retriever import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.appending import joined


class PriorSource(Protocol):
    """Scores of all passages.

    Attributes:
        name: What manifests call it.
        temperature: T where nothing else is said: what its scores are usually divided by.
        corpus: The N passages.
        knows_done: Whether it scores DONE, too, as a passage after the last one.
    """

    name: str

    @property
    def temperature(self) -> float: ...  # noqa: D102

    @property
    def corpus(self) -> Corpus: ...  # noqa: D102

    @property
    def knows_done(self) -> bool: ...  # noqa: D102

    def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> LogWeights:
        """Make ready for Q queries.

        Args:
            queries: The queries.
            evidence: For each, the passages found so far, in order.

        Returns:
            A function from n numbers of these queries to their scores, ``[n, N]``, or ``[n, N + 1]`` with
            DONE. It is called when a query gets its turn, so that no more than those of a few are in memory.
        """
        ...


@dataclass
class DensePrior:
    """Inner products with the embeddings of a bi-encoder, all of them.

    The temperature is that of training: 1 / 20 for vectors of length one, else 1. It scores DONE where it was
    trained to.

    Args:
        retriever: Bi-encoder and embeddings.
        name: What manifests call it.
    """

    retriever: DenseRetriever
    name: str = "biencoder"

    @property
    def temperature(self) -> float:  # noqa: D102
        lengths = np.linalg.norm(self.retriever.embeddings[:16], axis=1)
        return 0.05 if np.allclose(lengths, 1.0, atol=1e-2) else 1.0

    @property
    def corpus(self) -> Corpus:  # noqa: D102
        return self.retriever.corpus

    @property
    def knows_done(self) -> bool:  # noqa: D102
        return self.retriever.learned_done is True

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        vectors = self.retriever.embed(queries, evidence)
        rows = self.retriever.embeddings if self.knows_done else self.retriever.embeddings[:-1]

        def scores(numbers: Ints) -> Floats:
            return np.asarray(vectors[numbers] @ rows.T, dtype=np.float64)

        return scores


@dataclass
class BM25Prior:
    """BM25 scores; a passage that shares no word with the query scores 0. Evidence joins the query's words.

    Args:
        retriever: BM25.
        name: What manifests call it.
    """

    retriever: BM25Retriever
    name: str = "bm25"
    temperature: float = 2.0

    @property
    def corpus(self) -> Corpus:  # noqa: D102
        return self.retriever.corpus

    @property
    def knows_done(self) -> bool:  # noqa: D102
        return False

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        texts = [joined(query, some) for query, some in zip(queries, evidence, strict=True)]

        def scores(numbers: Ints) -> Floats:
            return self.retriever.scores([texts[n] for n in numbers.tolist()])

        return scores


class EmptyPromptPrior:
    """What the generator would write if nothing was asked: log-probabilities (nats, ``renormalized``).

    With a negative weight it is taken back: a generator favours passages that it has seen as answers,
    whatever the query. The index is walked once, at the first question, and again where it has changed.

    Args:
        retriever: The generator.
    """

    name = "empty prompt"
    temperature = 1.0
    knows_done = False

    def __init__(self, retriever: GenerativeRetriever):
        self._retriever = retriever
        self._kept: tuple[ConstraintIndex, Floats] | None = None

    @property
    def corpus(self) -> Corpus:  # noqa: D102
        return self._retriever.corpus

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        weights = self.log_probabilities()

        def scores(numbers: Ints) -> Floats:
            return np.broadcast_to(weights, (len(numbers), len(weights)))

        return scores

    def log_probabilities(self) -> Floats:
        """``[N]`` of every passage; those with equal tokens share their row's probability evenly.

        Of a generator that writes spans, of all spans of each passage together.
        """
        retriever = self._retriever
        with turn(retriever.model):
            if self._kept is None or self._kept[0] is not retriever.index:
                self._kept = retriever.index, self._walked()
            return self._kept[1]

    def _walked(self) -> Floats:
        retriever, rows = self._retriever, self._retriever.index.rows
        retriever.model.eval()
        found = score_rows(retriever.decoder(1).generator, retriever.index, retriever.codec.model_input([]))
        found = found - np.log(np.diff(rows.members_before(np.arange(len(rows) + 1))))
        found = found[rows.row_of.astype(np.int64)][:-1]
        if retriever.spans is not None:
            found = np.logaddexp.reduceat(found, retriever.spans.offsets[:-1])
        return found


class Remembering:
    """A source that remembers the last question, for one that is asked again with another weight.

    Args:
        source: What it asks.
    """

    def __init__(self, source: PriorSource):
        self._source = source
        self.name, self.temperature = source.name, source.temperature
        self._asked: tuple[object, LogWeights] | None = None

    @property
    def corpus(self) -> Corpus:  # noqa: D102
        return self._source.corpus

    @property
    def knows_done(self) -> bool:  # noqa: D102
        return self._source.knows_done

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        question = tuple(queries), tuple(tuple(some) for some in evidence)
        last = self._asked  # read once: another thread may ask another question
        if last is None or last[0] != question:
            last = self._asked = question, self._source.ask(queries, evidence)
        return last[1]
