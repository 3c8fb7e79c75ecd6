"""Queries of all retrievers: texts become queries, and filters become sets of passages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers, one_each
from grls.data.inputs.entries import SOURCE, queries_from
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.arguments import UnfitError, fitted, list_from, short_repr

log = logging.getLogger(__name__)


_FIELDS: dict[str, Any] = {
    "id": str, "text": str, "evidence": tuple[str, ...], "answers": tuple[str, ...], "metadata": str,
}  # fmt: skip
"""The types of the fields of a query, which a ``Query`` that a user makes may not have."""


def queries_of(queries: Any) -> list[Query]:
    """Queries of a search from texts, whose ids are their numbers, and ``Query``, mixed and repeated.

    :func:`~grls.data.inputs.entries.queries_from` reads everything else.
    """
    if isinstance(queries, str):
        text = short_repr(queries)
        raise DataError(f"expected a list of queries, got the text {text}; write [{text}].", SOURCE)
    elements = queries if isinstance(queries, list | tuple) else list_from(queries)
    if elements is None and getattr(getattr(queries, "index", None), "names", None) == [None]:
        queries = queries.reset_index(drop=True)  # of a frame without ids, which a search does not need
    if elements is None or hasattr(queries, "_fields"):
        return queries_from(queries)
    result: list[Query] = []
    for number, element in enumerate(elements):
        if not isinstance(element, Query | str):
            return queries_from(elements)
        query = element if isinstance(element, Query) else Query(str(number), element)
        named = isinstance(query.id, str) and query.id != str(number)
        label = f"query {number} ({query.id!r})" if named else f"query {number}"
        for name in _FIELDS if isinstance(element, Query) else ("text",):
            try:
                fitted(getattr(query, name), _FIELDS[name])
            except UnfitError as error:
                raise DataError(error.said_of(f"{label}: its {name}"), SOURCE) from None
        if not query.text.strip():
            raise DataError(f"{label}: its text is empty; give it a text.", SOURCE)
        result.append(query)
    return result


def reachable(queries: Sequence[Query], allow: Allow, corpus: Corpus) -> list[Numbers | None]:
    """The passages that each query may retrieve, ascending; None: all. Queries of equal filters share them.

    A query whose filter leaves no passage has no hits, with a warning.
    """
    if allow is None:
        return [None] * len(queries)
    filters = one_each(allow, len(queries))
    passages = {rule: rule.numbers(corpus) for rule in dict.fromkeys(filters) if rule is not None}
    allowed = [None if rule is None else passages[rule] for rule in filters]
    empty = [query for query, own in zip(queries, allowed, strict=True) if own is not None and not len(own)]
    if empty and len(empty) == len(queries):
        log.warning("the filter leaves no passage of the corpus, so there are no hits.")
    else:
        for query in empty:
            log.warning("query %r: its filter leaves no passage, so it has no hits.", query.id)
    return allowed


def with_evidence_text(query: Query, evidence: Sequence[Passage]) -> str:
    parts = [query.text, *(part for passage in evidence for part in (passage.title, passage.text))]
    return " ".join(part for part in parts if part)


def evidence_numbers(corpus: Corpus, evidence: Sequence[Passage]) -> list[int]:
    """The numbers of evidence, in order, without passages that are not in the corpus."""
    numbers = corpus.numbers([passage.id for passage in evidence]) if evidence else []
    return [number for number in numbers if number is not None]
