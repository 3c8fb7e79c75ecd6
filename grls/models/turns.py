"""One thread at a time for a model that is driven from within.

The fast search exchanges a model's attention, and whoever catches what reaches its head the head, for the
time of a step; two threads that drive one model would compute with one another's. Whoever drives a model
takes its turn; a thread that has it may take it again, and other models are not held up. A function of the
user's is called outside of a turn: it may wait for a thread that needs the model. The module does not know
what is computed.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_turns: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


def turn(model: Any) -> threading.RLock:
    """The turn of a model, to be held by ``with``; the same one for the same model."""
    with _making:
        if model not in _turns:
            _turns[model] = threading.RLock()
        return _turns[model]
