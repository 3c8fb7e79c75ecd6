"""A retriever as a DSPy module, with DSP's fused queries.

One thread retrieves at a time, so a retriever need not be thread-safe. A hit keeps its
score and gets a probability: exp(s) for a generator, whose score s is a log-probability; else the softmax
over the hits, as in DSP's retrieval server. CombSUM adds the probabilities.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from grls.answer.dsp.calls import note
from grls.answer.dsp.needed import dspy
from grls.answer.prompts import shown
from grls.answer.retrievers import FindsPassages
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.retrieve.fusion.retriever import comb_sum
from grls.runs.results import find_passages

Scale = Literal["softmax", "log"]
"""Meaning of scores: any scale (``softmax``), or log-probabilities in nats (``log``)."""

DEEPER = 3
"""Factor of the depth of a query that is fused with others, as in DSP."""


class RetrievedPassage(NamedTuple):
    """A retrieved passage, with its text on one line behind its title.

    For fused queries, score and probability are the sum of probabilities, which is not normalised.
    """

    id: str
    text: str
    score: float
    probability: float


class Retrieval(dspy.Module):
    """A retriever as a DSPy module; copies of a program share it.

    ``k``: passages a query. ``scale``: the meaning of the scores; ``log`` for a generator.
    """

    def __init__(
        self,
        retriever: FindsPassages,
        corpus: Corpus,
        k: int = 3,
        scale: Scale = "softmax",
    ):
        super().__init__()
        self.retriever = retriever
        self.corpus = corpus
        self.k = k
        self.scale = scale
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Retrieval:
        return self

    def forward(self, query: str, k: int | None = None) -> Any:
        """The best passages for a query, as a DSPy prediction: ``passages`` (texts) and ``found``."""
        hits = self.find(query, k)
        return dspy.Prediction(passages=[hit.text for hit in hits], found=hits)

    def find(self, query: str, k: int | None = None) -> list[RetrievedPassage]:
        passages = self._search(query, self.k if k is None else k)
        return self._noted([query], passages)

    def fused(self, queries: Sequence[str], k: int | None = None) -> list[RetrievedPassage]:
        """DSP's ``fused_retrieval``: the best k passages by the sum of probabilities over queries.

        An empty query is left out; a repeated query counts twice. A single query is retrieved for as it is.
        """
        k = self.k if k is None else k
        queries = [query for query in queries if query.strip()]
        if len(queries) <= 1:
            return self.find(queries[0] if queries else "", k)
        by_query = {query: self._search(query, DEEPER * k) for query in dict.fromkeys(queries)}
        texts = {passage.id: passage.text for passages in by_query.values() for passage in passages}
        rankings = [
            [Hit(passage.id, passage.probability) for passage in by_query[query]] for query in queries
        ]
        hits = comb_sum(rankings)[:k]
        fused = [RetrievedPassage(hit.id, texts[hit.id], hit.score, hit.score) for hit in hits]
        return self._noted(queries, fused)

    def _search(self, query: str, k: int) -> list[RetrievedPassage]:
        if not query.strip():
            return []
        with self._lock:
            (hits,) = self.retriever.retrieve([Query("0", query)], k)
            passages = find_passages(self.corpus, (hit.id for hit in hits))
        return [
            RetrievedPassage(hit.id, shown(passages[hit.id]), hit.score, p)
            for hit, p in zip(hits, probabilities(hits, self.scale), strict=True)
        ]

    def _noted(self, queries: list[str], passages: list[RetrievedPassage]) -> list[RetrievedPassage]:
        note("retrieval", queries=queries, found=[[passage.id, passage.score] for passage in passages])
        return passages


def probabilities(hits: Sequence[Hit], scale: Scale) -> list[float]:
    if scale == "log":
        return [math.exp(hit.score) for hit in hits]
    if not hits:
        return []
    best = max(hit.score for hit in hits)
    weights = [math.exp(hit.score - best) for hit in hits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
