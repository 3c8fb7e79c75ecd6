"""The trace of a program: the steps of one query, in order, as JSON values of a ``kind``.

Kinds are ``lm``, ``retrieval``, ``branch``, ``majority``, ``stop``. A step ``lm`` asks for one
output: it has ``signature``,
``inputs``, ``outputs`` or ``failed`` (why), and all ``calls`` that the model answered: ``prompt`` (the
text of a single message, else a list of role and text), ``output``, ``tokens_read`` and
``tokens_written`` (0 if the model does not say), and ``cut`` if the length limit cut the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

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
