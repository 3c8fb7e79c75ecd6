"""One thread at a time for an object whose state is changed for the time of a call.

For the time of a step, the fast search replaces the attention of a model, and the output head is replaced as
well. A tokenizer keeps the padding, the truncation and the splitting of special tokens of its last call. Two
threads with one of them would get each other's state. So a thread takes the turn of the object first. The
same thread may take it again, and other objects are not blocked. Who holds the turn of a tokenizer takes no
other one. Functions of the user are called outside of a turn, because they may wait for a thread that needs
the object. The module does not know what is computed.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_turns: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_making = threading.Lock()


def turn(shared: Any) -> threading.RLock:
    """The lock of a model or tokenizer, for ``with``; the same lock for the same object."""
    with _making:
        if shared not in _turns:
            _turns[shared] = threading.RLock()
        return _turns[shared]
