"""Hits as documents of other libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from grls.data.corpus import Corpus
from grls.data.types import Hit


def with_metadata(hits: Sequence[Hit], corpus: Corpus) -> Iterator[tuple[Hit, dict[str, Any]]]:
    """Each hit with the metadata of its passage; see :func:`titled`."""
    numbers = [number for number in corpus.numbers([hit.id for hit in hits]) if number is not None]
    rows = corpus.table[numbers]["metadata"] if numbers else []
    for hit, text in zip(hits, rows, strict=True):
        yield hit, titled(json.loads(text), hit.title)


def titled(metadata: dict[str, Any], title: str) -> dict[str, Any]:
    """The metadata of a passage with its title as ``title``, if it has one."""
    return {**metadata, "title": title} if title else metadata
