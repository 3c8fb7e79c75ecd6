"""Searches that come in at the same time are answered as one batch, by a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import NamedTuple

from grls.data.filters import Filter
from grls.data.types import Hit, Query

Answer = Callable[[Sequence[str | Query], int, Filter | None], list[list[Hit]]]
"""Queries, k and a filter -> the hits of each query."""


class _Request(NamedTuple):
    """A search that waits.

    Attributes:
        queries: Its queries.
        k: Largest number of hits of a query.
        allow: Its filter.
        future: Gets the hits, or the error.
    """

    queries: Sequence[str | Query]
    k: int
    allow: Filter | None
    future: Future[list[list[Hit]]]


class Batches:
    """Requests that wait for the thread that answers them.

    The thread starts with the first request, and ends when this object goes.
    """

    def __init__(self) -> None:
        self._waiting: list[_Request] = []
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    async def ask(
        self, answer: Answer, queries: Sequence[str | Query], k: int, allow: Filter | None
    ) -> list[list[Hit]]:
        """The hits of queries, found together with those of other requests that wait.

        Requests that the tasks of an event loop make in one round form a batch, and so do those that come
        in while the thread works. A request that is cancelled before its batch begins is left out of it.

        Args:
            answer: Finds the hits of several queries.
            queries: The queries of the request.
            k: Largest number of hits of a query; requests of one k and filter are answered together.
            allow: The filter.
        """
        future: Future[list[list[Hit]]] = Future()
        with self._lock:
            self._waiting.append(_Request(queries, k, allow, future))
        asyncio.get_running_loop().call_soon(self._hand_over, answer)
        return await asyncio.wrap_future(future)

    def _hand_over(self, answer: Answer) -> None:
        with self._lock:
            if self._waiting:
                self._pool = self._pool or ThreadPoolExecutor(1, "grls-search")
                self._pool.submit(self._work, answer)

    def _work(self, answer: Answer) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        groups: dict[tuple[int, Filter | None], list[_Request]] = {}
        for request in waiting:
            if request.future.set_running_or_notify_cancel():
                groups.setdefault((request.k, request.allow), []).append(request)
        for requests in groups.values():
            _answer(answer, requests)


def _answer(answer: Answer, requests: Sequence[_Request]) -> None:
    """Answer requests of one k and filter; where that fails, each alone, so that errors find their caller."""
    first = requests[0]
    try:
        found = iter(answer([query for one in requests for query in one.queries], first.k, first.allow))
        rankings = [list(islice(found, len(one.queries))) for one in requests]
    except Exception as error:  # whatever a retriever raises belongs to the caller
        if len(requests) == 1:
            first.future.set_exception(error)
            return
        for one in requests:
            _answer(answer, [one])
        return
    for one, hits in zip(requests, rankings, strict=True):
        one.future.set_result(hits)
