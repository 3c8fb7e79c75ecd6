"""Hits with the text, title and metadata of their passages."""

from __future__ import annotations

from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.types import FullHit, Hit


def with_texts(rankings: Sequence[Sequence[Hit]], corpus: Corpus) -> list[list[Hit]]:
    """The hits with text, title and metadata of their passages, which are read once.

    Args:
        rankings: Hits of the corpus, by id.
        corpus: The corpus.
    """
    ids = list({hit.id for hits in rankings for hit in hits})
    numbers = [number for number in corpus.numbers(ids) if number is not None]
    read = {one.id: (one, held) for one, held in corpus.with_metadata(numbers)} if numbers else {}
    return [[FullHit.of(hit, *read[hit.id]) for hit in hits] for hits in rankings]
