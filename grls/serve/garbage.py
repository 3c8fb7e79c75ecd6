"""Keeps Python's garbage collector away from what a server has loaded.

A full collection visits every object: with torch, transformers and a corpus in memory, hundreds of
milliseconds in which no thread goes on. So what is loaded is taken out of later collections.
"""

from __future__ import annotations

import gc


def set_loaded_aside() -> None:
    """Collect garbage, and leave what remains out of later collections.

    It is called when retrievers have been loaded, and when an old version has ended: what was set aside
    before is looked at again, so that a version that has ended leaves the memory.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
