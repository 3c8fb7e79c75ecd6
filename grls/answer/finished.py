"""A finished run as a retriever: it returns the passages that the run has for a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.errors import MismatchError, Option
from grls.runs.run import Run


class FinishedRun:
    """Looks up the passages of a run.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        corpus: The corpus of the run.
        queries: The queries to answer, the first ones of the split.
        split: The split to answer.

    Attributes:
        info: The run's manifest; None if it has none.
        score_mode: What the scores of the run mean.

    Raises:
        DataError: The file is missing or malformed.
        MismatchError: Its manifest names another corpus or split, or fewer queries, or it answers none.
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
        if self.info is not None and self.info.limit is not None and self.info.limit < len(queries):
            raise MismatchError(
                f"{run} ({self.info.asked}) answers fewer queries than the {len(queries):,} asked; give "
                f"{Option('limit', self.info.limit)}, or retrieve for all of them."
            )
        self.corpus = corpus
        self.score_mode = loaded.score_mode or "unknown"
        self._rankings = loaded.rankings

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """The first k passages of each query; none for a query that the run does not hold."""
        return [self._rankings.get(query.id, [])[:k] for query in queries]
