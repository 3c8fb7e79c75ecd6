"""Batches of the requests that several threads make at the same time.

A thread that makes a request while no batch is computed takes all waiting requests and computes them;
requests made meanwhile wait for the next batch. There is no extra thread and no timer, and a single thread
gets batches of one. The function is never called twice at once, so it need not be thread-safe. The module
does not know what is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class Gathered(Generic[Request, Result]):
    """A function of a list of requests, called with one request at a time.

    Args:
        compute: Computes a result for each request of a list, in order. If it raises for a list, each request
            is computed alone, so that an error reaches only the thread that caused it.
        most: Most requests computed together.
    """

    def __init__(self, compute: Callable[[Sequence[Request]], Sequence[Result]], most: int):
        self._compute = compute
        self._most = most
        self._waiting: list[tuple[Request, Future[Result]]] = []
        self._list_lock = threading.Lock()
        self._compute_lock = threading.Lock()

    def __call__(self, asked: Request) -> Result:
        """The result of a request, computed together with other waiting requests."""
        mine: Future[Result] = Future()
        with self._list_lock:
            self._waiting.append((asked, mine))
        while not mine.done():
            with self._compute_lock:
                if mine.done():  # another thread computed it while this one waited
                    break
                with self._list_lock:
                    batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                try:
                    results = self._compute([asked for asked, _ in batch])
                    for (_, future), one in zip(batch, results, strict=True):
                        future.set_result(one)
                except BaseException as error:
                    self._fail(batch, error)
        return mine.result()

    def _fail(self, batch: Sequence[tuple[Request, Future[Result]]], error: BaseException) -> None:
        """Compute the requests of a failed batch one by one; a request that was alone fails."""
        for asked, future in batch:
            if future.done():
                continue
            if len(batch) == 1 or not isinstance(error, Exception):
                future.set_exception(error)
                continue
            try:
                (result,) = self._compute([asked])
                future.set_result(result)
            except BaseException as own_error:
                future.set_exception(own_error)
