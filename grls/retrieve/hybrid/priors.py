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
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import USUAL, Analyzer
from grls.decode.prior import LogWeights
from grls.decode.score_all import score_rows
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.turns import turn
from grls.retrieve.base import Retriever, ScoresAll
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import BM25, Opening, load, open_member
from grls.retrieve.spec import recorded


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

    def fingerprint(self) -> str:
        """Of what its scores depend on."""
        ...

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


class RetrieverPrior:
    """The scores of a retriever that scores all passages.

    Args:
        retriever: Any with the capability :class:`~grls.retrieve.base.ScoresAll`.
        name: What manifests call it; empty: its kind.

    Raises:
        ConfigError: It scores only what it finds.
    """

    def __init__(self, retriever: Retriever, name: str = ""):
        if not isinstance(retriever, ScoresAll):
            raise ConfigError(
                f"{name or retriever.kind} ({retriever.kind}) does not score all passages, so it cannot be a "
                "prior, a teacher or a source of proposals; take a folder of kind dense, sparse or "
                "multi-vector, or bm25."
            )
        self.retriever = retriever
        self.name = name or retriever.kind
        self._scoring: ScoresAll = retriever

    @property
    def temperature(self) -> float:  # noqa: D102
        return self._scoring.temperature

    @property
    def corpus(self) -> Corpus:  # noqa: D102
        return self.retriever.corpus

    @property
    def knows_done(self) -> bool:  # noqa: D102
        return self._scoring.scores_done

    @property
    def least_score(self) -> float:
        """A passage that scores no more is no hit."""
        return self._scoring.least_score

    def fingerprint(self) -> str:  # noqa: D102
        return self.retriever.fingerprint()

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        return self._scoring.scores(queries, evidence)


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

    def fingerprint(self) -> str:  # noqa: D102
        return f"empty prompt of {self._retriever.fingerprint()}"

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

    def fingerprint(self) -> str:  # noqa: D102
        return self._source.fingerprint()

    def ask(  # noqa: D102
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]
    ) -> LogWeights:
        question = tuple(queries), tuple(tuple(some) for some in evidence)
        last = self._asked  # read once: another thread may ask another question
        if last is None or last[0] != question:
            last = self._asked = question, self._source.ask(queries, evidence)
        return last[1]


def open_sources(
    corpus: Corpus,
    names: Sequence[str],
    device: str = "auto",
    options: SearchOptions | None = None,
    analyzer: Analyzer = USUAL,
) -> list[RetrieverPrior]:
    """Open what priors are made of, in float32.

    Args:
        corpus: What BM25 is over.
        names: Folders of retrievers that score all passages (bi-encoders), or ``bm25``.
        device: Where they compute.
        options: How they search; none of them rescores, compiles or shows progress.
        analyzer: How BM25 splits texts into words.

    Raises:
        ConfigError: A folder's retriever does not score all passages.
        DataError: It holds no retriever.
    """
    search = replace(options or SearchOptions(), rescore=0, compile=False)
    how = Opening(device, search=search, corpus=corpus)
    words = {"kind": BM25, "analyzer": recorded(analyzer)}
    opened = [open_member(words, Path(), name, how) if name == BM25 else load(name, how) for name in names]
    return [RetrieverPrior(one, name) for one, name in zip(opened, names, strict=True)]
