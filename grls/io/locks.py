"""Locks of models and tokenizers, which threads share."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


def exclusive(shared: Any) -> threading.RLock:
    """The lock of a model or tokenizer, for ``with``; the same lock for the same object.

    The fast search replaces attention and output head of a model for a step, and a tokenizer keeps padding
    and truncation of its last call: two threads would get each other's state. To avoid deadlocks, a thread
    with the lock of a tokenizer takes no other lock, and functions of the user are called without a lock.
    """
    with _making:
        if shared not in _locks:
            _locks[shared] = threading.RLock()
        return _locks[shared]
