"""What the thread of a retriever does: searches, hops of a stream, and other calls.

A search is answered together with others of one retriever, k and filter; where a retriever lets queries join
its search, with those that come in meanwhile. A stream makes one hop a turn, so
that other requests come in between. The module does not know HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from grls.api.streaming import StreamedHop
from grls.api.texts import with_texts
from grls.data.filters import Filter
from grls.data.types import Hit
from grls.retrieve.base import Retriever
from grls.retrieve.joins import JoiningText, LetsJoin
from grls.serve.worker import JobQueue, deliver, deliver_error

_LEAST_SLOTS, _MOST_SLOTS = 8, 64
"""Queries in flight of a search that others join, at first and at most; a retriever may have fewer slots."""


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

    @cached_property
    def key(self) -> Hashable:
        """Searches of one retriever, k and filter go together; joined ones if their beams are the same."""
        retriever, k, allow = self.batch_key
        if isinstance(retriever, LetsJoin) and retriever.lets_join:
            return id(retriever), max(k, retriever.widest)
        return id(retriever), k, allow

    def work(self, batch: Sequence[SearchJob], queue: JobQueue) -> bool:
        """Answer a batch; where it fails, each request alone, so that an error finds its request."""
        retriever = self.batch_key.retriever
        if isinstance(retriever, LetsJoin) and retriever.lets_join:
            self._join(retriever, JoiningJobs(batch, queue))
        else:
            self._together(batch)
        return False

    def alone(self) -> None:
        """Answer this request, or fail."""
        try:
            deliver(self, self._found(self.queries))
        except Exception as error:
            deliver_error(self, error)

    def _join(self, retriever: LetsJoin, source: JoiningJobs) -> None:
        try:
            retriever.search_joined(source, max(self.batch_key.k, retriever.widest), source.slots)
        except Exception:
            for job in source.jobs():
                if not job.future.done():
                    job.alone()

    def _together(self, batch: Sequence[SearchJob]) -> None:
        try:
            rankings = iter(self._found([query for job in batch for query in job.queries]))
            for job in batch:
                deliver(job, list(islice(rankings, job.size)))
        except Exception as error:
            if len(batch) == 1:
                deliver_error(self, error)
            for job in batch if len(batch) > 1 else ():
                job.alone()

    def _found(self, queries: Sequence[str]) -> list[list[Hit]]:
        retriever, k, allow = self.batch_key
        return with_texts(retriever.retrieve(queries, k, allow), retriever.corpus)


class _Owner(NamedTuple):
    """A query of a request."""

    job: SearchJob
    place: int


class JoiningJobs:
    """The queries of requests that join a search while it runs; see :class:`~grls.retrieve.joins.TextSource`.

    Args:
        batch: The requests that begin.
        queue: Where further requests of their key come from.
    """

    def __init__(self, batch: Sequence[SearchJob], queue: JobQueue):
        self._queue, self._key = queue, batch[0].key
        self._texts: deque[JoiningText] = deque()
        self._found: dict[SearchJob, dict[int, list[Hit]]] = {}
        for job in batch:
            self._add(job)
        most = len(self._texts) + queue.joining(self._key)
        self.slots = min(_MOST_SLOTS, max(_LEAST_SLOTS, 1 << (most - 1).bit_length()))
        """Queries in flight; a search with too few of them ends, so that a larger one begins."""

    def waiting(self) -> int:
        """The number of queries that may join now."""
        further = self._queue.joining(self._key)
        full = self.slots < _MOST_SLOTS and len(self._texts) + further > self.slots
        return len(self._texts) + (0 if full else further)

    def take(self, most: int) -> list[JoiningText]:
        """At most so many queries, which join now."""
        for job in self._queue.join(self._key, most - len(self._texts)):
            self._add(job)
        texts = [self._texts.popleft() for _ in range(min(most, len(self._texts)))]
        for job in [job for job in self._found if job.future.done()]:  # cancelled, or failed
            del self._found[job]
        self._queue.began(sum(job.size - len(hits) for job, hits in self._found.items()) - len(self._texts))
        return [text for text in texts if not self.gone(text.owner)]

    def jobs(self) -> list[SearchJob]:
        """The requests that are not answered."""
        return list(self._found)

    def gone(self, owner: _Owner) -> bool:
        """Whether nobody wants the hits of a query any more: its request is cancelled, or has failed."""
        return owner.job.future.done()

    def answer(self, owner: _Owner, hits: list[Hit]) -> None:
        """The hits of a query; with the last one, its request is answered."""
        found = self._found.get(owner.job)
        if found is None:  # its request has failed
            return
        found[owner.place] = hits
        if len(found) == owner.job.size:
            del self._found[owner.job]
            rankings = [found[place] for place in range(owner.job.size)]
            deliver(owner.job, with_texts(rankings, owner.job.batch_key.retriever.corpus))

    def fail(self, owner: _Owner, error: Exception) -> None:
        """A query cannot be searched, and so its request fails."""
        deliver_error(owner.job, error)

    def _add(self, job: SearchJob) -> None:
        self._found[job] = {}
        _, k, allow = job.batch_key
        self._texts += [JoiningText(text, k, allow, _Owner(job, n)) for n, text in enumerate(job.queries)]


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

    def work(self, batch: Sequence[StreamJob], queue: JobQueue) -> bool:
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

    def work(self, batch: Sequence[CallJob], queue: JobQueue) -> bool:
        """Call the function."""
        deliver(self, self._function())
        return False
