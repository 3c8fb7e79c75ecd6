"""A language model ends what nobody waits for: the step of the model raises an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grls.errors import GrlsError


class GivenUpError(GrlsError):
    """Nobody waits for an answer any more."""

    def __init__(self) -> None:
        super().__init__("nobody waits for this answer any more.")


@contextmanager
def ending_when(gone: Callable[[], bool], model: Any) -> Iterator[None]:
    """For the time of a block, each step of a model raises a :class:`GivenUpError` once nobody waits.

    Args:
        gone: Whether nobody waits any more.
        model: The model; None: it does not run in this process.
    """
    if model is None:
        yield
        return

    def check(*_: object) -> None:
        if gone():
            raise GivenUpError

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
