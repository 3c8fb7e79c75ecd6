"""What a model calls its cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any


def cache_argument(model: Any) -> str:
    """The argument of a transformers model, and of its ``generate``, that takes a cache.

    It is ``cache`` since transformers 5.24, and ``past_key_values`` before; 5.40 takes the new name alone.
    """
    return _of(type(model).forward)


@cache
def _of(forward: Callable[..., Any]) -> str:
    return "cache" if "cache" in signature(forward).parameters else "past_key_values"
