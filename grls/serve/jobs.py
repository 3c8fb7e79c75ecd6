"""What the thread of a retriever does: searches, hops of a stream, and other calls.

A search is answered together with others of one retriever, k and filter. A stream makes one hop a turn, so
that other requests come in between. The module does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

from grls.api.streaming import StreamedHop
from grls.api.texts import with_texts
from grls.data.filters import Filter
from grls.data.types import Hit
from grls.retrieve.base import Retriever
from grls.serve.worker import deliver, deliver_error


class BatchKey(NamedTuple):
    """What searches have in common that are answered together.

    Attributes:
        retriever: The retriever, of the hops that are asked for.
        k: Largest number of hits of a query.
        allow: The filter.
    """

    retriever: Retriever
    k: int
    allow: Filter | None


class SearchJob:
    """A search of one request; its result is a list of hits for each query.

    Args:
        queries: The queries, at least one.
        batch_key: How they are searched.
    """

    def __init__(self, queries: Sequence[str], batch_key: BatchKey):
        self.queries, self.batch_key, self.size = queries, batch_key, len(queries)
        self.future: Future[list[list[Hit]]] = Future()
        self.tries = 0

    @property
    def key(self) -> Hashable:
        """Searches of one retriever, k and filter go together."""
        return id(self.batch_key.retriever), self.batch_key.k, self.batch_key.allow

    def work(self, batch: Sequence[SearchJob]) -> bool:
        """Answer a batch; where it fails, each request alone, so that an error finds its request."""
        try:
            rankings = iter(self._found([query for job in batch for query in job.queries]))
            for job in batch:
                deliver(job, list(islice(rankings, job.size)))
        except Exception as error:
            if len(batch) == 1:
                deliver_error(self, error)
            for job in batch if len(batch) > 1 else ():
                job.work([job])
        return False

    def _found(self, queries: Sequence[str]) -> list[list[Hit]]:
        retriever, k, allow = self.batch_key
        return with_texts(retriever.retrieve(queries, k, allow), retriever.corpus)


class StreamJob:
    """The hops of a query, one a turn; its result is None, when the last hop is out.

    Args:
        hops: The hops.
        emit: Called with each hop, in the thread of the retriever.
    """

    def __init__(self, hops: Iterator[StreamedHop], emit: Callable[[StreamedHop], object]):
        self._hops, self._emit, self.size = hops, emit, 1
        self.future: Future[None] = Future()
        self.tries = 0

    @property
    def key(self) -> Hashable:
        """A stream goes alone."""
        return None

    def work(self, batch: Sequence[StreamJob]) -> bool:
        """Make a hop; whether there may be more."""
        self.tries = 1  # a hop that is lost cannot be made again
        hop = next(self._hops, None)
        if hop is not None:
            self._emit(hop)
        if hop is None or hop.last:
            deliver(self, None)
        return not self.future.done()


class CallJob:
    """A call that needs the retriever for itself; its result is what the function returns.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[[], Any]):
        self._function, self.size = function, 1
        self.future: Future[Any] = Future()
        self.tries = 0

    @property
    def key(self) -> Hashable:
        """A call goes alone."""
        return None

    def work(self, batch: Sequence[CallJob]) -> bool:
        """Call the function."""
        deliver(self, self._function())
        return False
