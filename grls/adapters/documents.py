"""Hits as documents of other libraries, and their queries, some of which may lack a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grls.api.searcher import Searcher
from grls.data.inputs.tables import json_value
from grls.data.types import Hit, hop_and_links
from grls.runs.trec import falling


def parted(hits: Sequence[Hit]) -> list[Hit]:
    """Hits with the scores of a run file: other libraries sort by scores, and part equal ones otherwise."""
    scores = falling([hit.score for hit in hits])
    return [hit._replace(score=score) for hit, score in zip(hits, scores, strict=True)]


def hits_of(searcher: Searcher, query: Any, k: int, **filters: Any) -> list[Hit]:
    """The hits of a query, :func:`parted`; none for a query without a text."""
    return [] if is_blank(query) else parted(searcher.search(query, k, **filters))


def metadata_of_hit(hit: Hit) -> dict[str, Any]:
    """The metadata of a hit with its ``title``, its ``hop`` in a chain and its ``links``, if it has them."""
    return titled(hit.metadata, hit.title) | hop_and_links(hit)


def titled(metadata: Mapping[str, Any], title: str) -> dict[str, Any]:
    """The metadata of a passage with its title as ``title``, if it has one."""
    return {**metadata, "title": title} if title else dict(metadata)


def is_blank(text: Any) -> bool:
    """Whether a query has no text: it is missing (None, NaN), or a rewriting step has left nothing of it.

    Such a query has no results, in every adapter, and disturbs no other.
    """
    return json_value(text) is None or (isinstance(text, str) and not text.strip())
