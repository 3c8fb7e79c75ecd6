"""Queries for a corpus without any: parts of its passages' sentences.

A query is a sentence of the passage that answers it, with some of its words left out (the inverse cloze task,
Lee et al. 2019, arXiv 1906.00300, keeps all of them): who searches knows some words of what there is. Such
queries are easier than real ones, above all for BM25.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Passage, Query

_LEAST = 4
"""Words that a query keeps at least."""

_DROPPED = 0.3
"""Probability that a word is left out."""

METADATA = '{"pseudo": "sentence"}'
"""The metadata of a pseudo-query."""


def sentence_queries(corpus: Corpus, count: int, seed: int, taken: Collection[str]) -> list[Query]:
    """Write queries for passages that are drawn at random.

    Args:
        corpus: The passages.
        count: Number of passages to draw; a passage without a sentence gets no query.
        seed: Seed of all draws.
        taken: Ids that other queries have.
    """
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(len(corpus)), min(count, len(corpus))))
    ids = free_ids(taken)
    made = []
    for passage in corpus.passages(numbers):
        text = _query(passage, draw)
        if text:
            made.append(Query(next(ids), text, (passage.id,), metadata=METADATA))
    return made


def _query(passage: Passage, draw: random.Random) -> str:
    """A part of one of its sentences; empty if it has none."""
    parts = sentences(passage.text) or [passage.title]
    words = draw.choice(parts).split()
    if len(words) <= _LEAST:
        return " ".join(words)
    kept = [place for place in range(len(words)) if draw.random() >= _DROPPED]
    if len(kept) < _LEAST:
        kept = sorted(draw.sample(range(len(words)), _LEAST))
    return " ".join(words[place] for place in kept)


def free_ids(taken: Collection[str]) -> Iterator[str]:
    """Ids of pseudo-queries that no other query has."""
    number = 0
    while True:
        number += 1
        if (name := f"pseudo-{number}") not in taken:
            yield name
