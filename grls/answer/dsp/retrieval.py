"""A retriever as a DSPy module, with DSP's fused queries.

One thread retrieves at a time, so a retriever need not be thread-safe. A hit keeps its
score; of fused queries CombSUM adds probabilities: exp(s) for a generator, whose score s is a
log-probability; else the softmax over the hits, as in DSP's retrieval server.
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

    For fused queries the score is the sum of probabilities, which is not normalised.
    """

    id: str
    text: str
    score: float


class Retrieval(dspy.Module):
    """A retriever as a DSPy module; copies of a program share it.

    ``k``: passages a query. ``scale``: the meaning of the scores; ``log`` for a generator.
    """

    def __init__(self, retriever: FindsPassages, corpus: Corpus, k: int = 3, scale: Scale = "softmax"):
        super().__init__()
        self.retriever = retriever
        self.corpus = corpus
        self.k = k
        self.scale = scale
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Retrieval:
        return self

    def forward(self, query: str) -> Any:
        """The best passages for a query, as a DSPy prediction: ``passages`` (texts) and ``found``."""
        found = self.find(query)
        return dspy.Prediction(passages=[passage.text for passage in found], found=found)

    def find(self, query: str) -> list[RetrievedPassage]:
        return self._passages([query], self._search(query, self.k))

    def fused(self, queries: Sequence[str]) -> list[RetrievedPassage]:
        """DSP's ``fused_retrieval``: the best k passages by the sum of probabilities over queries.

        An empty query is left out; a repeated query counts twice. A single query is retrieved for as it is.
        """
        queries = [query for query in queries if query.strip()]
        if len(queries) <= 1:
            return self.find(queries[0] if queries else "")
        found = {query: self._search(query, DEEPER * self.k) for query in dict.fromkeys(queries)}
        likely = {query: probable(hits, self.scale) for query, hits in found.items()}
        return self._passages(queries, comb_sum([likely[query] for query in queries])[: self.k])

    def _search(self, query: str, k: int) -> Sequence[Hit]:
        if not query.strip():
            return []
        with self._lock:
            return self.retriever.retrieve([Query("0", query)], k)[0]

    def _passages(self, queries: list[str], hits: Sequence[Hit]) -> list[RetrievedPassage]:
        with self._lock:
            passages = find_passages(self.corpus, (hit.id for hit in hits))
        note("retrieval", queries=queries, found=[[hit.id, hit.score] for hit in hits])
        return [RetrievedPassage(hit.id, shown(passages[hit.id]), hit.score) for hit in hits]


def probable(hits: Sequence[Hit], scale: Scale) -> list[Hit]:
    """The hits with their probabilities as scores."""
    best = 0.0 if scale == "log" else max((hit.score for hit in hits), default=0.0)
    weights = [math.exp(hit.score - best) for hit in hits]
    total = 1.0 if scale == "log" else math.fsum(weights)
    return [Hit(hit.id, weight / total) for hit, weight in zip(hits, weights, strict=True)]
