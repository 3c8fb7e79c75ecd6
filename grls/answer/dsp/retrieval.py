"""A Retriever of ours as a DSPy module, and what DSP does with one: fused queries, ranking of candidates.

Queries of several threads are retrieved for together, by one thread at a time, so a retriever need not be
thread-safe (see ``gather``). A hit keeps its score and gets a probability: that of a generator is the
probability of the passage, e to its score; other scores are brought to one by the softmax over the hits, as
DSP's retrieval server does. Probabilities are what CombSUM adds. The module does not know who asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from grls.answer.dsp.gather import Gathered
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.trace import note
from grls.answer.prompts import shown
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError
from grls.retrieve.base import Retriever
from grls.retrieve.fusion.fuse import comb_sum
from grls.retrieve.queries import check_counts
from grls.runs.results import find_passages

Scale = Literal["softmax", "log"]
"""What scores are: of no scale, or log-probabilities (nats)."""

DEEPER = 3
"""A query that is fused with others is retrieved for so many times deeper, as in DSP."""


class RetrievedPassage(NamedTuple):
    """A passage that was found.

    Attributes:
        id: Its id.
        text: As a model reads it: on one line, with its title.
        score: The retriever's; where queries were fused, the sum of probabilities.
        probability: See the module; not brought to one where queries were fused.
    """

    id: str
    text: str
    score: float
    probability: float


class _Asked(NamedTuple):
    text: str
    k: int
    allow: tuple[str, ...] | None


class _Given(NamedTuple):
    hits: list[Hit]
    passages: dict[str, Passage]
    """Those of the hits, and of what was allowed."""


class Retrieval(dspy.Module):
    """Retrieves; a copy of a program shares it.

    Args:
        retriever: What retrieves.
        corpus: Where the texts come from.
        k: Passages a query.
        scale: What its scores are; ``log`` for a generator.
        batch_size: Most queries retrieved for together.

    Raises:
        ConfigError: A count is below 1.
    """

    def __init__(
        self,
        retriever: Retriever,
        corpus: Corpus,
        k: int = 3,
        scale: Scale = "softmax",
        batch_size: int = 32,
    ):
        super().__init__()
        check_counts(k=k, batch_size=batch_size)
        self.retriever = retriever
        self.corpus = corpus
        self.k = k
        self.scale = scale
        self._find = Gathered(self._batch, batch_size)

    def __deepcopy__(self, memo: dict[int, Any]) -> Retrieval:
        return self

    def forward(self, query: str, k: int | None = None) -> Any:
        """The best passages for a query, as DSPy's modules give them.

        Returns:
            A ``dspy.Prediction``: ``passages`` (texts) and ``found`` (:class:`RetrievedPassage`), best first.
        """
        found = self.find(query, k)
        return dspy.Prediction(passages=[one.text for one in found], found=found)

    def find(self, query: str, k: int | None = None) -> list[RetrievedPassage]:
        """The best passages for a query; none for an empty one."""
        found = self._search(query, self.k if k is None else k)
        self._note([query], found)
        return found

    def fused(self, queries: Sequence[str], k: int | None = None) -> list[RetrievedPassage]:
        """DSP's ``fused_retrieval``: the best passages by the sum of probabilities over several queries.

        An empty query is left out; one that is given twice counts twice. A single one is plainly retrieved
        for.

        Returns:
            The best k; their score and probability are the sums.
        """
        k = self.k if k is None else k
        asked = [query for query in queries if query.strip()]
        if len(asked) <= 1:
            return self.find(asked[0] if asked else "", k)
        each = {query: self._search(query, DEEPER * k) for query in dict.fromkeys(asked)}
        texts = {one.id: one.text for found in each.values() for one in found}
        rankings = [[Hit(one.id, one.probability) for one in each[query]] for query in asked]
        found = [
            RetrievedPassage(hit.id, texts[hit.id], hit.score, hit.score) for hit in comb_sum(rankings)[:k]
        ]
        self._note(asked, found)
        return found

    def rank(self, query: str, candidates: Sequence[str], k: int | None = None) -> list[RetrievedPassage]:
        """The best of some passages, given by their ids, for a query.

        Candidates that the retriever does not find follow in the order given, with score and probability 0.

        Raises:
            DataError: A candidate is not in the corpus.
            ConfigError: There is none.
        """
        some = tuple(dict.fromkeys(candidates))
        if not some:
            raise ConfigError("there is no candidate to rank; expected passage ids.")
        given = self._find(_Asked(query, len(some), some))
        found = self._found(given)
        missing = set(some) - {one.id for one in found}
        found += [RetrievedPassage(i, shown(given.passages[i]), 0.0, 0.0) for i in some if i in missing]
        self._note([query], found := found[:k])
        return found

    def _search(self, query: str, k: int) -> list[RetrievedPassage]:
        return self._found(self._find(_Asked(query, k, None))) if query.strip() else []

    def _found(self, given: _Given) -> list[RetrievedPassage]:
        pairs = zip(given.hits, probabilities(given.hits, self.scale), strict=True)
        return [RetrievedPassage(hit.id, shown(given.passages[hit.id]), hit.score, p) for hit, p in pairs]

    def _batch(self, asked: Sequence[_Asked]) -> list[_Given]:
        """Retrieve for several at once; texts, too, are read by one thread.

        Those of one depth together: a generator's beam is as wide as its results are many, so that what is
        found would otherwise depend on who asks at the same time.
        """
        hits: list[list[Hit]] = [[] for _ in asked]
        for k in sorted({one.k for one in asked}):
            some = [number for number, one in enumerate(asked) if one.k == k]
            queries = [Query(str(number), asked[number].text) for number in some]
            allow = [asked[number].allow for number in some]
            found = self.retriever.retrieve(queries, k, allow if any(a is not None for a in allow) else None)
            for number, own in zip(some, found, strict=True):
                hits[number] = list(own)
        wanted = [
            [*(hit.id for hit in some), *(one.allow or ())] for some, one in zip(hits, asked, strict=True)
        ]
        texts = find_passages(self.corpus, (i for ids in wanted for i in ids))
        return [_Given(some, {i: texts[i] for i in ids}) for some, ids in zip(hits, wanted, strict=True)]

    def _note(self, queries: list[str], found: Sequence[RetrievedPassage]) -> None:
        note("retrieval", queries=queries, found=[[one.id, one.score] for one in found])


def probabilities(hits: Sequence[Hit], scale: Scale) -> list[float]:
    """Probabilities of the hits of one query; see the module."""
    if scale == "log":
        return [math.exp(hit.score) for hit in hits]
    if not hits:
        return []
    best = max(hit.score for hit in hits)
    weights = [math.exp(hit.score - best) for hit in hits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
