"""Keeps the C library's heap from growing during trainings on a CPU.

Inputs differ in length, so tensors of all sizes come and go. The heap of glibc soon is full of holes that are
too small for the next tensor. A fixed ``MALLOC_MMAP_THRESHOLD_`` takes every large tensor from the system
instead. That keeps the heap small as well, but the system clears the memory first, and a step takes a quarter
longer. Here the holes are returned to the system whenever they are large: a batch may leave GiB of them.
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import lightning as L

STEPS = 50
"""Batches between two returns where the size of the holes is unknown."""
_STATUS = Path("/proc/self/status")
ROOM = 1 << 30
"""Bytes of holes from which they are returned: taking memory again costs time."""


class _Heap(ctypes.Structure):
    """``struct mallinfo2`` of glibc: bytes in use are ``uordblks`` in heaps and ``hblkhd`` in maps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def holes() -> int | None:
    """Bytes that this process holds and does not use; None: unknown, as before glibc 2.33 or without /proc.

    What glibc counts as free has pages in it that were returned: this is what is resident less what is used.
    """
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        ask: Any = ctypes.CDLL(None).mallinfo2
        resident = _STATUS.read_text(encoding="ascii").partition("RssAnon:")[2].split()[0]
    except (AttributeError, OSError, IndexError):
        return None
    ask.restype = _Heap
    known = ask()
    in_use = int(known.uordblks) + int(known.hblkhd)
    return max(0, int(resident) * 1024 - in_use)


def give_back_freed() -> bool:
    """Return all free pages of this process to the system.

    Returns:
        Whether any page was returned; False with another C library than glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).malloc_trim(0))


class SmallHeap:
    """Called after every batch of a training on a CPU: returns free memory when there is much of it."""

    def __init__(self) -> None:
        self._batches = 0

    def __call__(self) -> None:
        """Count a batch, and return memory if there is much of it."""
        self._batches += 1
        free = holes()
        if self._batches % STEPS == 0 if free is None else free > ROOM:
            give_back_freed()


class GiveBackFreed(L.Callback):
    """Keeps the heap small where the model of a Lightning training is on a CPU."""

    def __init__(self) -> None:
        self._heap = SmallHeap()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Return memory after a step, when its tensors are free."""
        if pl_module.device.type == "cpu":
            self._heap()
