"""Which passages are near to which: by any retriever, or by the rare words that they share.

Passages with the same title and text are no neighbours: reading one would give the other away. What the
neighbours are for is not known here (memorisation reads them, chains of passages follow them).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours, copies
from grls.data.types import Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError
from grls.retrieve.base import Retriever
from grls.retrieve.queries import check_counts

log = logging.getLogger(__name__)

_BATCH = 256
_LONGEST = 1000
"""Characters of a passage that a retriever is asked for, at most: the front tells what it is about."""


def by_retriever(
    retriever: Retriever, corpus: Corpus, k: int, by: str, told: Callable[[int], object] | None = None
) -> Neighbours:
    """What a retriever finds when it is asked for the passages themselves.

    Args:
        retriever: Over this corpus.
        corpus: The N passages.
        k: Neighbours a passage, at most.
        by: What the retriever is called.
        told: Called with the number of passages that are done.

    Raises:
        ConfigError: ``k`` is not positive.
    """
    check_counts(k=k)
    same = copies(corpus)
    lists: list[list[int]] = []
    for first in range(0, len(corpus), _BATCH):
        numbers = range(first, min(first + _BATCH, len(corpus)))
        found = _asked(retriever, corpus, list(numbers), k)
        lists += [
            [n for n in some if same[n] != same[own]][:k] for own, some in zip(numbers, found, strict=True)
        ]
        if told is not None:
            told(len(numbers))
    return _told(Neighbours.of_lists(lists, k, by))


def _asked(retriever: Retriever, corpus: Corpus, numbers: list[int], k: int) -> list[list[int]]:
    """Numbers of the passages that are found for some passages, themselves and copies included."""
    passages = corpus.passages(numbers)
    texts = [f"{passage.title} {passage.text}".strip()[:_LONGEST] for passage in passages]
    asked = [place for place, text in enumerate(texts) if text]
    # A few more than k, as a passage itself and its copies do not count.
    hits = retriever.retrieve([Query(passages[p].id, texts[p]) for p in asked], k + 5) if asked else []
    ids = list({hit.id for some in hits for hit in some})
    number = dict(zip(ids, corpus.numbers(ids), strict=True))
    found: list[list[int]] = [[] for _ in numbers]
    for place, some in zip(asked, hits, strict=True):  # a generator may find DONE, which has no number
        found[place] = [n for hit in some if (n := number[hit.id]) is not None]
    return found


def by_shared_words(corpus: Corpus, k: int, rare: int = 20, analyzer: Analyzer | None = None) -> Neighbours:
    """The passages that share rare words, those with the greatest sum of the words' IDF first.

    The IDF of a word that stands in n of N passages is log(N / n). Words are those that say something; see
    :meth:`grls.data.words.Analyzer.content`.

    Args:
        corpus: The N passages.
        k: Neighbours a passage, at most.
        rare: A word is rare if at most so many passages have it.
        analyzer: What words are.

    Raises:
        ConfigError: ``k`` is not positive, or ``rare`` below 2.
        DataError: No two passages share a rare word.
    """
    check_counts(k=k)
    if rare < 2:
        raise ConfigError(f"rare must be at least 2, as a word in one passage links nothing; got {rare}.")
    texts = [f"{passage.title} {passage.text}" for passage in corpus]
    content = (analyzer or Analyzer()).over(texts).content
    words = CountVectorizer(binary=True, min_df=2, max_df=rare, analyzer=content, dtype=np.float64)
    try:
        has = words.fit_transform(texts)  # [N, words]
    except ValueError:
        raise DataError(
            f"no two passages of {corpus.source} share a word that at most {rare} have."
        ) from None
    idf = np.log(len(corpus) / np.asarray(has.sum(axis=0)))  # [1, words]
    weighted = has.multiply(idf).tocsr()
    shared = (weighted @ has.T).tocsr()  # [N, N], few entries: a word has at most `rare` passages
    same = copies(corpus)
    lists = []
    for own, (first, last) in enumerate(pairwise(shared.indptr)):
        others, scores = shared.indices[first:last], shared.data[first:last]
        order = np.lexsort((others, -scores))
        lists.append([n for n in others[order].tolist() if same[n] != same[own]][:k])
    return _told(Neighbours.of_lists(lists, k, f"words in at most {rare} passages"))


def _told(found: Neighbours) -> Neighbours:
    alone = int((found.numbers[:, 0] < 0).sum())
    if alone:
        log.warning("%d of %d passages have no neighbour.", alone, len(found.numbers))
    return found
