"""The neighbours of each passage: by any retriever, or by rare words in common.

Copies with the same title and text are not neighbours, since reading one would give the other away.
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
from grls.io.progress import counted
from grls.retrieve.base import Retriever
from grls.retrieve.queries import check_counts

log = logging.getLogger(__name__)

_BATCH = 256
_LONGEST = 1000
"""Largest number of characters of a passage in a query; its front is enough."""


def by_retriever(
    retriever: Retriever, corpus: Corpus, k: int, by: str, progress: Callable[[int], object] | None = None
) -> Neighbours:
    """At most k passages that a retriever over ``corpus`` returns for each passage as a query.

    ``by`` names the retriever in the record.
    """
    check_counts(k=k)
    same = copies(corpus)
    lists: list[list[int]] = []
    for first in range(0, len(corpus), _BATCH):
        numbers = range(first, min(first + _BATCH, len(corpus)))
        queries = {}
        for number, passage in zip(numbers, corpus.passages(list(numbers)), strict=True):
            if text := f"{passage.title} {passage.text}".strip()[:_LONGEST]:
                queries[number] = Query(passage.id, text)
        # A few more than k, since the passage itself and its copies do not count.
        rankings = retriever.retrieve([*queries.values()], k + 5) if queries else []
        ids = list({hit.id for hits in rankings for hit in hits})
        number_of = dict(zip(ids, corpus.numbers(ids), strict=True))
        hits_of = dict(zip(queries, rankings, strict=True))
        for number in numbers:  # a generator may return DONE, which has no number
            near = [number_of[hit.id] for hit in hits_of.get(number, ())]
            lists.append([n for n in near if n is not None and same[n] != same[number]][:k])
        if progress is not None:
            progress(len(numbers))
    return _reported(Neighbours.of_lists(lists, k, by))


def by_shared_words(corpus: Corpus, k: int, rare: int = 20, analyzer: Analyzer | None = None) -> Neighbours:
    """The passages with rare words in common, the largest sum of the words' IDF first.

    The IDF of a word in n of N passages is log(N / n); a rare word is a content word
    (:meth:`grls.data.words.Analyzer.content`) in at most ``rare`` passages.
    """
    check_counts(k=k)
    if rare < 2:
        raise ConfigError(f"rare must be at least 2, as a word in one passage links nothing; got {rare}.")
    texts = [f"{passage.title} {passage.text}" for passage in corpus]
    content = (analyzer or Analyzer()).of(corpus).content
    words = CountVectorizer(binary=True, min_df=2, max_df=rare, analyzer=content, dtype=np.float64)
    try:
        holding = words.fit_transform(texts)  # [N, words]
    except ValueError:
        raise DataError(
            f"no two passages of {corpus.source} share a word of at most "
            f"{counted(rare, 'passage')}: raise rare."
        ) from None
    idf = np.log(len(corpus) / np.asarray(holding.sum(axis=0)))  # [1, words]
    weighted = holding.multiply(idf).tocsr()
    shared = (weighted @ holding.T).tocsr()  # [N, N], few entries: a word has at most `rare` passages
    same = copies(corpus)
    lists = []
    for passage, (first, last) in enumerate(pairwise(shared.indptr)):
        numbers, scores = shared.indices[first:last], shared.data[first:last]
        order = np.lexsort((numbers, -scores))
        lists.append([n for n in numbers[order].tolist() if same[n] != same[passage]][:k])
    return _reported(Neighbours.of_lists(lists, k, f"words in at most {rare} passages"))


def _reported(neighbours: Neighbours) -> Neighbours:
    alone = int((neighbours.numbers[:, 0] < 0).sum())
    if alone:
        log.warning("without a neighbour: %d of %s.", alone, counted(len(neighbours.numbers), "passage"))
    return neighbours
