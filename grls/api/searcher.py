"""Searching with a retriever of any kind.

A searcher holds a retriever and the folder it was opened from; what is tuned stands in that folder, so a
searcher has no options of its own. It knows no kind of retriever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from threading import RLock
from typing import overload

from grls.data.corpus import Corpus
from grls.data.filters import Filter, Only, both, where
from grls.data.types import Hit, Query
from grls.errors import ConfigError
from grls.retrieve.base import Description, Retriever
from grls.retrieve.queries import check_counts


class Searcher:
    """A retriever that is ready to search.

    Threads may share a searcher: their searches take turns, and each gets what it would get alone.

    Args:
        retriever: The retriever.
        folder: The folder that it was opened from.
    """

    def __init__(self, retriever: Retriever, folder: str | Path):
        self.retriever = retriever
        self.folder = Path(folder)
        self._turn = RLock()

    def __repr__(self) -> str:
        what = f"{self.describe().name}, {len(self.corpus):,} passages"
        return f"{type(self).__name__}({str(self.folder)!r}: {what})"

    @property
    def corpus(self) -> Corpus:
        """The passages that it searches."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """What it is: system, meaning of its scores, options, members."""
        return self.retriever.describe()

    @overload
    def search(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self,
        queries: str | Query,
        k: int = 10,
        *,
        where: str | None = None,
        allow: Collection[str] | None = None,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        queries: Sequence[str | Query],
        k: int = 10,
        *,
        where: str | None = None,
        allow: Collection[str] | None = None,
    ) -> list[list[Hit]]: ...

    def search(
        self,
        queries: str | Query | Sequence[str | Query],
        k: int = 10,
        *,
        where: str | None = None,
        allow: Collection[str] | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The best passages of a query, or of each of several.

        Args:
            queries: A query, or a list of queries. Many at once are much faster than one after another.
            k: Largest number of hits of a query, at least 1.
            where: A filter over the metadata of passages, such as ``"year>=2000"`` (:mod:`grls.data.where`).
            allow: Ids of the passages that may be found; None: all.

        Returns:
            Hits with text and title, best first; for a list of queries one list each, in their order.

        Raises:
            ConfigError: ``k`` is no positive number, or a filter cannot be read.
            DataError: A query is empty, or an allowed passage is not in the corpus.
        """
        check_counts(k=k)
        alone = isinstance(queries, str | Query)
        asked: list[str | Query] = [queries] if isinstance(queries, str | Query) else list(queries)
        allowed = filter_of(where, allow)
        with self._turn:
            rankings = self.retriever.retrieve(asked, k, allowed)
        found = self._with_texts(rankings)
        return found[0] if alone else found

    def _with_texts(self, rankings: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
        """The hits with text and title of their passages."""
        ids = list({hit.id for hits in rankings for hit in hits})
        numbers = [number for number in self.corpus.numbers(ids) if number is not None]
        passages = {passage.id: passage for passage in self.corpus.passages(numbers)} if numbers else {}
        return [
            [Hit(hit.id, hit.score, passages[hit.id].text, passages[hit.id].title) for hit in hits]
            for hits in rankings
        ]


def filter_of(condition: str | None, allow: Collection[str] | None) -> Filter | None:
    """The filter of a condition over metadata and of allowed ids; None: every passage may be found.

    Raises:
        ConfigError: The condition cannot be read.
    """
    if isinstance(allow, str):
        raise ConfigError(f"allow takes passage ids as a list or set, got the text {allow!r}.")
    return both(
        None if condition is None else where(condition), None if allow is None else Only(frozenset(allow))
    )
