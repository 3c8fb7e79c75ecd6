"""One thread at a time for a model whose parts are replaced during a step.

For the time of a step, the fast search replaces the attention of a model, and :class:`grls.models.head.Head`
replaces its output head. Two threads with one model would get each other's parts. So a thread takes the turn
of a model first. The same thread may take it again, and other models are not blocked. Functions of the user
are called outside of a turn, because they may wait for a thread that needs the model. The module does not
know what is computed.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_turns: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


def turn(model: Any) -> threading.RLock:
    """The lock of a model, for ``with``; the same lock for the same model."""
    with _making:
        if model not in _turns:
            _turns[model] = threading.RLock()
        return _turns[model]
