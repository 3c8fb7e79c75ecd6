"""The trace of a program for a query: each call of the model, each retrieval, and the cost.

A trace belongs to a thread (a context variable holds it): steps in threads that a program starts are not
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
        steps: JSON values, each with a ``kind``: ``lm``, ``retrieval``, ``branch``, ``majority``, ``choice``,
            ``stop``. A step ``lm`` asks for one output: it has ``signature``, ``inputs``, ``outputs`` or
            ``failed`` (why), and all ``calls`` that the model answered, in order: ``prompt`` (the text of a
            single message, else a list of role and text), ``output`` as it came, ``tokens_read`` and
            ``tokens_written`` (0 if the model does not say), and ``cut`` if the length limit cut the output.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)

    def calls(self) -> list[dict[str, Any]]:
        """Every call that the model answered."""
        return [call for step in self.steps if step["kind"] == "lm" for call in step["calls"]]

    def cost(self) -> dict[str, int]:
        """Numbers of calls, tokens (as the model counts them) and retrievals over all steps."""
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
    """Within this block, the steps of this thread are noted in the trace that it yields."""
    trace = ProgramTrace()
    before = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(before)


def note(kind: str, **what: Any) -> None:
    """Note a step, if a trace is recorded."""
    trace = _current.get()
    if trace is not None:
        trace.steps.append({"kind": kind, **what})
