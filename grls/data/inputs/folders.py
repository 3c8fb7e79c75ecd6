"""A data set folder in BEIR's layout from a corpus, and from queries with gold passages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.inputs.gold import Gold, refuse_unknown_gold
from grls.data.types import Query
from grls.errors import ConfigError, DataError

_SPLIT = re.compile(r"\w[\w.-]*")


def write_splits(folder: str | Path, corpus: Corpus, splits: Mapping[str, Gold]) -> None:
    """Write a data set, atomically: the whole folder or nothing; an earlier data set there is replaced.

    ``splits``: ``train``, ``dev``, ``test`` -> its queries and their gold passages.

    Raises:
        ConfigError: The name of a split is no file name, or the folder holds something else.
        DataError: A split has no query, a gold passage is not in the corpus, two different queries have one
            id, or qrels cannot hold an id.
        WriteError: The folder cannot be written.
    """
    queries: dict[str, Query] = {}
    for split, gold in splits.items():
        if not _SPLIT.fullmatch(split):
            raise ConfigError(f"expected a split such as train, dev or test, got {split!r}.")
        if not gold.queries:
            raise DataError(
                f"the split {split!r} holds no query; add queries or leave the split out.", folder
            )
        refuse_unknown_gold(gold, [corpus])
        for query in gold.queries:
            if queries.setdefault(query.id, query) != query:
                raise DataError(
                    f"the query {query.id!r} of the split {split!r} differs from the query of that id in "
                    "another split; rename one.",
                    folder,
                )
    write_dataset(folder, corpus, queries.values(), {split: gold.qrels for split, gold in splits.items()})
