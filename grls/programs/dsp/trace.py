"""What a program did for a query: each call of the model, each retrieval, and what it cost.

A trace belongs to a thread (a context variable holds it): what a program starts in other threads is not
noted. The module does not know what the steps mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Trace:
    """The steps of one query, in order.

    Attributes:
        steps: JSON values, each with a ``kind``: ``lm``, ``retrieval``, ``branch``, ``stop``.
        calls: Calls of the model, those that failed included.
        tokens_read: Tokens of the prompts, as the model counts them; 0 where it does not say.
        tokens_written: Tokens written.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0
    tokens_read: int = 0
    tokens_written: int = 0

    def cost(self) -> dict[str, int]:
        """Calls and tokens."""
        return {
            "calls": self.calls,
            "tokens_read": self.tokens_read,
            "tokens_written": self.tokens_written,
            "retrievals": sum(step["kind"] == "retrieval" for step in self.steps),
        }


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def recorded() -> Iterator[Trace]:
    """Within this block, of this thread, steps are noted in the trace that it yields."""
    trace = Trace()
    before = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(before)


def note(kind: str, **what: Any) -> None:
    """Note a step, where a trace is recorded."""
    trace = _current.get()
    if trace is not None:
        trace.steps.append({"kind": kind, **what})


def spend(calls: int, tokens_read: int, tokens_written: int) -> None:
    """Note what was spent, where a trace is recorded."""
    trace = _current.get()
    if trace is not None:
        trace.calls += calls
        trace.tokens_read += tokens_read
        trace.tokens_written += tokens_written
