"""A small part of a data set, to measure on: some queries to learn from, their gold passages, and others.

Batches of it are as long as those of the whole; what grows with the corpus is estimated from its size.
"""

from __future__ import annotations

import random
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split, write_dataset

QUERIES, PASSAGES = 48, 400
SPLIT = "train"
"""The only split of a sample."""


def write_sample(data: str | Path, split: str, folder: str | Path, seed: int = 0) -> None:
    """Write a part of a data set as a data set.

    Args:
        data: The data set.
        split: The split whose queries are drawn.
        folder: Where the part is written.
        seed: Seed of the draw.

    Raises:
        DataError: The data are malformed.
    """
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, split, corpus)
    rng = random.Random(seed)
    judged = [query for query in queries if gold_passages(query, qrels)]
    drawn = rng.sample(judged, min(QUERIES, len(judged)))
    grades = {query.id: qrels[query.id] for query in drawn}
    wanted = [name for query in drawn for name in (*grades[query.id], *query.evidence)]
    numbers = {number for number in corpus.numbers(wanted) if number is not None}
    drawn_passages = rng.sample(range(len(corpus)), min(PASSAGES, len(corpus)))
    others = [number for number in drawn_passages if number not in numbers]
    numbers |= set(others[: max(0, PASSAGES - len(numbers))])
    write_dataset(folder, corpus.passages(sorted(numbers)), drawn, {SPLIT: grades})
