"""Queries made of the passages alone: parts of sentences, and sentences without a name in them."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import count

from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Query
from grls.data.words import plain_words

LINKED = 0.1
"""The share of passages that name others from which links are expected to gain."""
_LEAST, _DROPPED = 4, 0.3
"""Words that a pseudo-query keeps at least; the probability that a word is left out."""
_MASKED = 100  # masked names, at most
CUT = '{"pseudo": "sentence"}'  # the metadata of pseudo-queries


def sentence_queries(corpus: Corpus, most: int, seed: int, taken: Collection[str]) -> list[Query]:
    """Write queries for passages that are drawn at random: parts of their sentences.

    A query is a sentence of the passage that answers it, with some of its words left out (the inverse cloze
    task, Lee et al. 2019, arXiv 1906.00300, leaves none out). Such queries are easier than real ones, above
    all for BM25. At most ``most`` passages are drawn, and one without a sentence gets no query; ``taken`` are
    ids that other queries have.
    """
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(len(corpus)), min(most, len(corpus))))
    ids = (name for number in count(1) if (name := f"pseudo-{number}") not in taken)
    queries = []
    for passage in corpus.passages(numbers):
        words = draw.choice(sentences(passage.text) or [passage.title]).split()
        if len(words) > _LEAST:
            left = [number for number in range(len(words)) if draw.random() >= _DROPPED]
            if len(left) < _LEAST:
                left = sorted(draw.sample(range(len(words)), _LEAST))
            words = [words[number] for number in left]
        if words:
            queries.append(Query(next(ids), " ".join(words), (passage.id,), metadata=CUT))
    return queries


def masked_queries(corpus: Corpus, seed: int, taken: Collection[str] = ()) -> list[Query]:
    """Write queries for passages that others name: title and sentence that hold the name, without it."""
    links, draw, queries = corpus.links(), random.Random(seed), list[Query]()
    ids = (name for number in count(1) if (name := f"masked-{number}") not in taken)
    if links.share < LINKED:
        return []
    for number in draw.sample(range(len(corpus)), len(corpus)):
        for naming in links.of(number):
            name, passage = f" {naming.words} ", corpus[number]
            texts = (f" {plain_words(sentence)} " for sentence in sentences(passage.text))
            held = next((text for text in texts if name in text), "").replace(name, " ")
            if len(held.split()) > _LEAST and len(naming.passages) == 1:
                text, gold = f"{plain_words(passage.title)}{held}".strip(), corpus[int(naming.passages[0])].id
                queries.append(Query(next(ids), text, (gold,), metadata=CUT))
                break
        if len(queries) == _MASKED:
            break
    return queries
