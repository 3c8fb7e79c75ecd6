"""Hits with the text and title of their passages."""

from __future__ import annotations

from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.types import Hit


def with_texts(rankings: Sequence[Sequence[Hit]], corpus: Corpus) -> list[list[Hit]]:
    """The hits with text and title of their passages, which are read once.

    Args:
        rankings: Hits of the corpus, by id.
        corpus: The corpus.
    """
    ids = list({hit.id for hits in rankings for hit in hits})
    numbers = [number for number in corpus.numbers(ids) if number is not None]
    passages = {passage.id: passage for passage in corpus.passages(numbers)} if numbers else {}
    return [
        [Hit(hit.id, hit.score, passages[hit.id].text, passages[hit.id].title) for hit in hits]
        for hits in rankings
    ]
