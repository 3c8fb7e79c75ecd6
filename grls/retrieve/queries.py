"""Queries of all retrievers: texts become queries, and filters become sets of passages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers, evaluate_filters, one_each
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError

log = logging.getLogger(__name__)


class Reachable(NamedTuple):
    """The passages that the filters of queries allow.

    Attributes:
        sets: Passage numbers of each distinct filter, ascending.
        places: For each query, the index of its filter in ``sets``; None: it has no filter.
    """

    sets: list[Numbers]
    places: list[int | None]

    def of(self, query: int) -> Numbers | None:
        """The passages that a query may retrieve; None: all."""
        place = self.places[query]
        return None if place is None else self.sets[place]


def queries_of(queries: Sequence[Query | str]) -> list[Query]:
    """Turn texts into queries; the id of a text is its index.

    Raises:
        DataError: ``queries`` is a text instead of a list, or an element is neither a query nor a text.
    """
    if isinstance(queries, str):
        raise DataError(f"expected a list of queries, got the text {queries!r}; write [{queries!r}].")
    for place, query in enumerate(queries):
        if not isinstance(query, Query | str):
            raise DataError(f"query {place}: expected a Query or a text, got {query!r}.")
    return [Query(str(n), query) if isinstance(query, str) else query for n, query in enumerate(queries)]


def reachable(
    queries: Sequence[Query], allow: Allow, corpus: Corpus, gone: Collection[int] = ()
) -> Reachable:
    """Evaluate the filters of queries, each distinct filter once.

    A query whose filter leaves no passage has no hits, with a warning.

    Args:
        queries: The queries.
        allow: The filter of all queries, or one for each.
        corpus: The passages.
        gone: Numbers of removed passages, which no query may retrieve.

    Raises:
        ConfigError: A filter cannot be used.
        DataError: A filter names a passage that is not in the corpus.
    """
    filters = one_each(allow, len(queries))
    passages = evaluate_filters([rule for rule in filters if rule is not None], corpus)
    if gone:
        removed = np.array(sorted(gone), dtype=np.int64)
        passages = {rule: np.setdiff1d(numbers, removed, True) for rule, numbers in passages.items()}
    place = {rule: number for number, rule in enumerate(passages)}
    empty = [
        q.id for q, rule in zip(queries, filters, strict=True) if rule is not None and not len(passages[rule])
    ]
    if empty and len(empty) == len(queries):
        log.warning("the filter leaves no passage of %s, so there are no hits.", corpus.source)
    else:
        for name in empty:
            log.warning("query %r: its filter leaves no passage, so it has no hits.", name)
    return Reachable(list(passages.values()), [None if rule is None else place[rule] for rule in filters])


def check_counts(**counts: Any) -> None:
    """Refuse counts that are no whole numbers, or below 1, by the name of their option.

    Raises:
        ConfigError: With the name and the value.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ConfigError(f"{name} must be a whole number, got {value!r}.")
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")


def joined(query: Query, evidence: Sequence[Passage]) -> str:
    """The text of a query with the titles and texts of its evidence appended."""
    parts = [query.text, *(part for passage in evidence for part in (passage.title, passage.text))]
    return " ".join(part for part in parts if part)


def evidence_numbers(corpus: Corpus, evidence: Sequence[Passage]) -> list[int]:
    """The numbers of evidence, in order; passages that are not in the corpus are left out."""
    numbers = corpus.numbers([passage.id for passage in evidence]) if evidence else []
    return [number for number in numbers if number is not None]
