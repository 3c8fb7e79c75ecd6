"""Searching with a retriever of any kind: at once, asynchronously, hop by hop."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Self, overload

from grls.api.streaming import Batches, StreamedHop, stream_hops
from grls.api.temporary import HeldFolder
from grls.api.texts import with_texts
from grls.data.corpus import Corpus
from grls.data.filters import Filter, Only, both, where
from grls.data.inputs.arguments import Count, checked
from grls.data.inputs.entries import SOURCE
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError
from grls.io.progress import counted
from grls.retrieve.base import Description, Retriever
from grls.retrieve.hops.retriever import search_hits
from grls.retrieve.queries import queries_of, query_place
from grls.retrieve.registry import Opening, load_retriever


class Searching:
    """A retriever that is ready to search, and its folder.

    Threads may share a searcher: their searches take turns, and each gets what it would get alone. A searcher
    can be pickled and copied: it is opened again from its folder, which must stay; a copy in the same process
    holds a temporary folder as well.

    Args:
        retriever: The retriever.
        folder: The folder that it was opened from; a :class:`~grls.api.temporary.HeldFolder` is held as
            long as the searcher.
        how: How it was opened; composites open it again in the same way.
    """

    def __init__(self, retriever: Retriever, folder: str | Path | HeldFolder, how: Opening | None = None):
        self.retriever = retriever
        self.place = folder if isinstance(folder, HeldFolder) else HeldFolder(folder)
        self.how = how or Opening()
        self.turn = RLock()
        self._batches = Batches()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: its folder, and how it was opened; so it is opened again where it is unpickled.

        Raises:
            ConfigError: The folder is temporary.
        """
        return {"folder": self.place, "how": self.how}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, how = state["folder"], state["how"]
        Searching.__init__(self, load_retriever(folder.path, how), folder, how)

    def __copy__(self) -> Self:
        """A searcher of its own over the same retriever, which also holds a temporary folder."""
        again = object.__new__(type(self))
        Searching.__init__(again, self.retriever, self.place, self.how)
        return again

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # a search changes nothing in a retriever

    def __repr__(self) -> str:
        what = f"{self.describe().name}, {counted(len(self.corpus), 'passage')}"
        where = "" if self.place.path_is_temporary else f"{str(self.folder)!r}: "
        return f"{type(self).__name__}({where}{what})"

    @property
    def folder(self) -> Path:
        """The folder that it was opened from."""
        return self.place.path

    @property
    def corpus(self) -> Corpus:
        """The passages that it searches."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """What it is: system, meaning of its scores, options, members."""
        return self.retriever.describe()

    def reopen(self) -> None:
        """Open the folder again, as after its options have changed; searches that run end as they began."""
        retriever = load_retriever(self.folder, self.how)
        with self.turn:
            self.retriever = retriever

    @overload
    def search(
        self,
        queries: str | Query,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[list[Hit]]: ...

    @checked
    def search(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The best passages of a query, or of each of several; with ``fixed`` and ``dynamic`` hops the chain.

        Args:
            queries: A query, or several: a list of texts or of ``Query``, or any other form that ``tune``
                takes (:func:`~grls.data.inputs.entries.queries_from`), such as a data frame. Many at once are
                much faster than one after another.
            k: Largest number of hits of a query, at least 1.
            where: A filter over the metadata of passages, such as ``"year>=2000"`` (:mod:`grls.data.where`).
            allow: Ids of the passages that may be found; None: all.

        Returns:
            Hits with text and title, best first; for a list of queries one list each, in their order. Of a
            chain they are in the order of hops, with the number of each hop (``hop``) and the score of the
            chain up to it.

        Raises:
            ConfigError: ``k`` is no positive number, or a filter cannot be read.
            DataError: A query is empty, or an allowed passage is not in the corpus.
        """
        hits = self._search(_listed(queries), k, filter_of(where, allow))
        found = with_texts(hits, self.corpus)
        return found[0] if isinstance(queries, str | Query) else found

    @overload
    async def asearch(
        self,
        queries: str | Query,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit]: ...

    @overload
    async def asearch(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[list[Hit]]: ...

    @checked
    async def asearch(
        self,
        queries: Any,
        k: Count = 10,
        *,
        where: str | None = None,
        allow: Collection[str | int] | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """:meth:`search` in asynchronous code; what comes in at the same time is searched as one batch.

        Requests of one ``k`` and one filter form a batch. A request that fails or is cancelled does not
        disturb the others. A thread searches, which starts with the first request and ends with the searcher.
        """
        allowed = filter_of(where, allow)
        hits = await self._batches.ask(self._search, _listed(queries), k, allowed)
        found = with_texts(hits, self.corpus)
        return found[0] if isinstance(queries, str | Query) else found

    @checked
    def stream(
        self, query: str | Query, *, where: str | None = None, allow: Collection[str | int] | None = None
    ) -> Iterator[StreamedHop]:
        """The hops of a query as they are found, until DONE or the most hops.

        Where one chain is kept, every hop adds a passage to it. Where several are kept, each item holds the
        best one so far; the last item holds the chain that the search chooses. Of ranked hops it is the
        likeliest chain. A retriever of single steps has one hop, its best passage.

        Args:
            query: The query.
            where: A filter over the metadata of passages. It holds in every hop, so it must hold the passages
                on the way as well.
            allow: Ids of the passages that may be found; None: all.

        Raises:
            ConfigError: A filter cannot be read.
            DataError: The query is empty.
        """
        (asked,) = _listed(query)
        return self._streamed(asked, filter_of(where, allow))

    def _streamed(self, query: str | Query, allow: Filter | None) -> Iterator[StreamedHop]:
        """The hops; it holds the searcher, and so its folder."""
        with self.place.named("this retriever"):
            yield from stream_hops(self.retriever, query, allow, self.turn)

    def rankings(self, queries: Sequence[str | Query], k: int) -> list[list[Hit]]:
        """The rankings of queries that measures read: chains are pooled, and hits have no texts.

        Raises:
            ConfigError: ``k`` is no positive number.
            DataError: A query is empty.
        """
        with self.turn, self.place.named("this retriever"):
            return self.retriever.retrieve(_listed(queries), k)

    def _search(self, queries: Sequence[str | Query], k: int, allow: Filter | None) -> list[list[Hit]]:
        with self.turn, self.place.named("this retriever"):
            return search_hits(self.retriever, queries, k, allow)


def _listed(queries: Any) -> list[Query]:
    """Queries as a list; a query alone becomes a list of one.

    Raises:
        DataError: There is something else, or a query without text.
    """
    asked = queries_of([queries] if isinstance(queries, str | Query) else queries)
    for place, query in enumerate(asked):
        if not query.text.strip():
            raise DataError(f"{query_place(query, place)}: its text is empty; give it a text.", SOURCE)
    return asked


def filter_of(condition: str | None, allow: Collection[str | int] | None) -> Filter | None:
    """The filter of a condition over metadata and of allowed ids; None: every passage may be found.

    Raises:
        ConfigError: The condition cannot be read.
    """
    try:
        rule = None if condition is None else where(condition)
    except ConfigError as error:
        raise ConfigError(f"where: {error.text}") from None
    return both(
        rule,
        None if allow is None else Only(frozenset(map(str, allow))),
    )
