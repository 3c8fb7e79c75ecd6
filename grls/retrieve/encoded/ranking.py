"""Ranking by scores that a retriever can compute for all passages.

The module does not know how passages are scored: a subclass returns the k best of a query.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from grls.data.filters import Allow, Numbers
from grls.data.inputs.arguments import Count, checked
from grls.data.types import Hit, Passage, Query
from grls.io.progress import Progress
from grls.models.base import Floats
from grls.retrieve.encoded.retriever import EncodedRetriever
from grls.retrieve.queries import check_counts, queries_of, reachable


class RanksByScores(EncodedRetriever):
    """A retriever that ranks by scores of all passages; DONE is not among them."""

    scores_done = False
    least_score: float

    @abstractmethod
    def best(
        self, asked: Any, queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """The k best passages of each query, equal scores in the order of the corpus; their scores.

        Args:
            asked: The encoded texts of all queries, from :meth:`encode`.
            queries: The places of the queries to search for.
            k: Largest number of passages.
            among: Numbers of the allowed passages, ascending; None: all.
        """

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Any:
        """The encoded texts of queries."""

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query, best first; ``Hit.score`` is the similarity.

        Equal scores keep the order of the corpus. A passage is a hit if its score is above ``least_score``.

        Raises:
            ConfigError: k is below 1.
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        listed = queries_of(queries)
        return self.retrieve_after(listed, [()] * len(listed), k, allow)

    def retrieve_after(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int, allow: Allow = None
    ) -> list[list[Hit]]:
        """The top-k passages given evidence; where the text is too long, the oldest evidence is left out.

        Raises:
            ConfigError: k is below 1.
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        check_counts(k=k)
        texts = self.texts(queries, evidence)
        among = self.among(queries, evidence, allow)
        asked = self.encode(texts)
        rankings: dict[int, list[Hit]] = {}
        with Progress(len(queries), self.kind, "queries", shown=self.progress or None) as bar:
            for places, numbers in among:
                for first in range(0, len(places), self.batch_size):
                    batch = places[first : first + self.batch_size]
                    best = self.best(asked, batch, k, numbers)
                    rankings |= {q: self.ids_with(*one) for q, one in zip(batch, best, strict=True)}
                    bar.update(len(batch))
        return [rankings[query] for query in range(len(queries))]

    def among(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], allow: Allow
    ) -> list[tuple[list[int], Numbers | None]]:
        """Groups of queries, by place, with the numbers of their allowed passages; None: all."""
        within = reachable(queries, allow, self.corpus)
        groups = [
            [query for query, its_place in enumerate(within.places) if its_place == place]
            for place in dict.fromkeys(within.places)
        ]
        return [(places, within.of(places[0])) for places in groups]


def top(scores: Floats, numbers: Numbers, k: int) -> tuple[Numbers, Floats]:
    """The k best passages, equal scores by number, ascending.

    Args:
        scores: ``[n]``.
        numbers: ``[n]``, ascending.
        k: Largest number of passages.
    """
    if len(scores) > k:
        least = np.partition(scores, -k)[-k] if k else np.inf
        kept = scores >= least
        scores, numbers = scores[kept], numbers[kept]
    order = np.argsort(-scores, kind="stable")[:k]
    return numbers[order], scores[order]
