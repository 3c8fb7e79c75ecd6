"""The calls of a program: those of several threads gathered into batches, and a trace of all steps.

A trace has the steps of one query, in order, as JSON values of a ``kind``: ``lm``, ``retrieval``,
``branch``, ``majority``, ``choice``, ``stop``. A step ``lm`` asks for one output: it has ``signature``,
``inputs``, ``outputs`` or ``failed`` (why), and all ``calls`` that the model answered: ``prompt`` (the
text of a single message, else a list of role and text), ``output``, ``tokens_read`` and
``tokens_written`` (0 if the model does not say), and ``cut`` if the length limit cut the output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

Trace = list[dict[str, Any]]
_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def cost_of(trace: Trace) -> dict[str, int]:
    """Numbers of calls, tokens (as the model counts them) and retrievals over all steps."""
    calls = [call for step in trace for call in step.get("calls", ())]
    return {
        "calls": len(calls),
        "tokens_read": sum(call["tokens_read"] for call in calls),
        "tokens_written": sum(call["tokens_written"] for call in calls),
        "retrievals": sum(step["kind"] == "retrieval" for step in trace),
    }


@contextmanager
def recorded_calls() -> Iterator[Trace]:
    """A block in which the steps of this thread are noted in the trace that it yields."""
    trace: Trace = []
    before = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(before)


def note(kind: str, **fields: Any) -> None:
    trace = _current.get()
    if trace is not None:
        trace.append({"kind": kind, **fields})


Request = TypeVar("Request")
Result = TypeVar("Result")


class Gathered(Generic[Request, Result]):
    """A function of a list of requests, called by several threads with one request each.

    A thread that makes a request while no batch is computed takes the waiting requests of the first one's
    ``kind`` and computes them; requests made meanwhile wait. There is no extra thread and no timer, and
    the function is never called twice at once. If ``compute`` raises for a list, each request is computed
    alone, so that an error reaches only its thread.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Request]], Sequence[Result]],
        batch_size: int,
        kind: Callable[[Request], object],
    ):
        self._compute = compute
        self._batch_size = batch_size
        self._kind = kind
        self._waiting: list[tuple[Request, Future[Result]]] = []
        self._list_lock = threading.Lock()
        self._compute_lock = threading.Lock()

    def __call__(self, request: Request) -> Result:
        mine: Future[Result] = Future()
        with self._list_lock:
            self._waiting.append((request, mine))
        while not mine.done():
            with self._compute_lock:
                if mine.done():  # another thread computed it while this one waited
                    break
                with self._list_lock:
                    kind = self._kind(self._waiting[0][0])
                    batch = [pair for pair in self._waiting if self._kind(pair[0]) == kind]
                    batch = batch[: self._batch_size]
                    self._waiting = [pair for pair in self._waiting if pair not in batch]
                self._settle(batch)
        return mine.result()

    def _settle(self, batch: Sequence[tuple[Request, Future[Result]]]) -> None:
        try:
            results = self._compute([request for request, _ in batch])
            for (_, future), result in zip(batch, results, strict=True):
                future.set_result(result)
        except BaseException as error:
            waiting = [pair for pair in batch if not pair[1].done()]
            for pair in waiting:
                if len(batch) == 1 or not isinstance(error, Exception):
                    pair[1].set_exception(error)
                else:
                    self._settle([pair])
