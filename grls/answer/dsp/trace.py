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
class ProgramTrace:
    """The steps of one query, in order.

    Attributes:
        steps: JSON values, each with a ``kind``: ``lm``, ``retrieval``, ``branch``, ``majority``, ``stop``.
            An output that was asked for (``lm``) names its ``signature`` and has ``inputs``, ``outputs`` or
            why it ``failed``, and all ``calls`` of the model for it; see
            :class:`~grls.answer.dsp.heard.Heard`.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)

    def calls(self) -> list[dict[str, Any]]:
        """Every call of the model, those that failed included."""
        return [call for step in self.steps if step["kind"] == "lm" for call in step["calls"]]

    def cost(self) -> dict[str, int]:
        """Calls, tokens (as the model counts them), retrievals: the sums over the steps."""
        calls = self.calls()
        return {
            "calls": len(calls),
            "tokens_read": sum(call["tokens_read"] for call in calls),
            "tokens_written": sum(call["tokens_written"] for call in calls),
            "retrievals": sum(step["kind"] == "retrieval" for step in self.steps),
        }


_current: ContextVar[ProgramTrace | None] = ContextVar("trace", default=None)


@contextmanager
def recorded_calls() -> Iterator[ProgramTrace]:
    """Within this block, of this thread, steps are noted in the trace that it yields."""
    trace = ProgramTrace()
    before = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(before)


def note(kind: str, **what: Any) -> None:
    """Note a step, where a trace is recorded_calls."""
    trace = _current.get()
    if trace is not None:
        trace.steps.append({"kind": kind, **what})
