"""What every retriever does with its queries: texts become queries, and filters sets of passages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers, evaluate_filters, one_each
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError

log = logging.getLogger(__name__)


class Reachable(NamedTuple):
    """What the filters of some queries let through.

    Attributes:
        sets: ``[n]`` passage numbers of each distinct filter, ascending.
        places: For each query, which of them; None: it has no filter.
    """

    sets: list[Numbers]
    places: list[int | None]

    def of(self, query: int) -> Numbers | None:
        """The passages that a query may find; None: all."""
        place = self.places[query]
        return None if place is None else self.sets[place]


def queries_of(given: Sequence[Query | str]) -> list[Query]:
    """Queries as they were given, a plain text as one whose id is its place.

    Raises:
        DataError: It is one text instead of a list, or an element is neither.
    """
    if isinstance(given, str):
        raise DataError(f"expected a list of queries, got the text {given!r}; write [{given!r}].")
    for place, some in enumerate(given):
        if not isinstance(some, Query | str):
            raise DataError(f"query {place}: expected a Query or a text, got {some!r}.")
    return [Query(str(n), some) if isinstance(some, str) else some for n, some in enumerate(given)]


def reachable(
    queries: Sequence[Query], allow: Allow, corpus: Corpus, gone: Collection[int] = ()
) -> Reachable:
    """Evaluate the filters of some queries, each distinct one once.

    A query whose filter leaves nothing is told of, and finds nothing.

    Args:
        queries: The queries.
        allow: What the caller allows them.
        corpus: What it is about.
        gone: Numbers of passages that nobody may find.

    Raises:
        ConfigError: A filter cannot be used, or none of them leaves a passage.
        DataError: A filter names a passage that the corpus does not hold.
    """
    filters = one_each(allow, len(queries))
    found = evaluate_filters([some for some in filters if some is not None], corpus)
    if gone:
        removed = np.array(sorted(gone), dtype=np.int64)
        found = {some: np.setdiff1d(numbers, removed, True) for some, numbers in found.items()}
    place = {some: number for number, some in enumerate(found)}
    empty = [
        q.id for q, some in zip(queries, filters, strict=True) if some is not None and not len(found[some])
    ]
    if empty and len(empty) == len(queries):
        raise ConfigError(
            f"no passage of {corpus.source} is allowed by the filter, so nothing can be retrieved; check it."
        )
    for name in empty:
        log.warning("query %r: its filter leaves no passage, so it finds none.", name)
    return Reachable(list(found.values()), [None if some is None else place[some] for some in filters])


def check_counts(**counts: int) -> None:
    """Refuse counts below 1, by the name of their option.

    Raises:
        ConfigError: One is.
    """
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")


def joined(query: Query, evidence: Sequence[Passage]) -> str:
    """The text of a query with those of the passages found so far."""
    parts = [query.text, *(part for passage in evidence for part in (passage.title, passage.text))]
    return " ".join(part for part in parts if part)
