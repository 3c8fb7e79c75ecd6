"""A finished run as a retriever: it returns the passages that the run has for a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Hit, Query
from grls.errors import ConfigError, MismatchError, Option, at_least
from grls.runs.run import Run


class FinishedRun:
    """Looks up the passages of a run.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        corpus: The corpus of the run.
        queries: All queries of the split.
        split: The split to answer.

    Attributes:
        info: The run's manifest; None if it has none.
        score_mode: What the scores of the run mean.

    Raises:
        DataError: The file is missing or malformed.
        MismatchError: Its manifest names another corpus or split, or it answers none of the queries.
    """

    def __init__(self, run: str | Path, corpus: Corpus, queries: Sequence[Query], split: str):
        loaded = Run.load(run)
        self.info = loaded.info
        if self.info is not None and self.info.corpus not in ("", corpus.fingerprint):
            raise MismatchError(f"{run} is of another corpus than {corpus.source}; retrieve again.")
        of = None if self.info is None else self.info.split
        if of not in (None, split) or not any(query.id in loaded.rankings for query in queries):
            raise MismatchError(
                f"{run} answers other queries than those asked; give the run of this {Option('split')}."
            )
        self.corpus = corpus
        self.score_mode = loaded.score_mode or "unknown"
        self._rankings = loaded.rankings

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The first k passages of each query; none for a query that the run does not hold.

        Raises:
            ConfigError: ``k`` is below 1, or there is a filter: a finished run cannot be filtered.
        """
        at_least(1, k=k)
        if allow is not None:
            raise ConfigError("a finished run cannot be filtered: retrieve again with the filter.")
        return [self._rankings.get(query.id, [])[:k] for query in queries]
