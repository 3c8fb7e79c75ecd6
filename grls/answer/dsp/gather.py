"""Batches of what several threads ask at the same time.

A thread that asks while nobody computes takes everything that waits and computes it for all; those that ask
meanwhile wait for the next batch. There is no thread of its own, no timer, and a single thread gets batches
of one. The function is never called twice at once, so it need not be thread-safe. The module does not know
what is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")


class Gathered(Generic[Asked, Given]):
    """A function of many, called with one at a time.

    Args:
        compute: One result for each of a list, in order. Where it raises for several, each is computed alone,
            so that an error is that of its own asker.
        most: Most that are computed together.
    """

    def __init__(self, compute: Callable[[Sequence[Asked]], Sequence[Given]], most: int):
        self._compute = compute
        self._most = most
        self._waiting: list[tuple[Asked, Future[Given]]] = []
        self._list_lock = threading.Lock()
        self._compute_lock = threading.Lock()

    def __call__(self, asked: Asked) -> Given:
        """The result for one, computed with others that wait."""
        mine: Future[Given] = Future()
        with self._list_lock:
            self._waiting.append((asked, mine))
        while not mine.done():
            with self._compute_lock:
                if not mine.done():  # else another thread computed it while this one waited
                    self._next_batch()
        return mine.result()

    def _next_batch(self) -> None:
        with self._list_lock:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            found = self._compute([asked for asked, _ in batch])
            for (_, future), one in zip(batch, found, strict=True):
                future.set_result(one)
        except BaseException as error:
            for asked, future in batch:
                if future.done():
                    continue
                if len(batch) > 1 and isinstance(error, Exception):
                    self._alone(asked, future)
                else:
                    future.set_exception(error)

    def _alone(self, asked: Asked, future: Future[Given]) -> None:
        try:
            (found,) = self._compute([asked])
            future.set_result(found)
        except BaseException as error:
            future.set_exception(error)
