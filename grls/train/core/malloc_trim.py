"""Keeps the C library's heap from growing during trainings on a CPU.

Inputs differ in length, so tensors of all sizes come and go. The heap of glibc soon is full of holes that are
too small for the next tensor. A fixed ``MALLOC_MMAP_THRESHOLD_`` takes every large tensor from the system
instead. That keeps the heap small as well, but the system clears the memory first, and a step takes a quarter
longer. Here the holes are returned to the system from time to time.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import lightning as L

STEPS = 50
"""Batches between two returns: the heap grows by tens of MiB a batch, but taking memory again costs time."""


def give_back_freed() -> bool:
    """Return all free pages of this process to the system.

    Returns:
        Whether any page was returned; False with another C library than glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).malloc_trim(0))


class GiveBackFreed(L.Callback):
    """Returns free memory to the system every :data:`STEPS` batches, where the model is on a CPU."""

    def __init__(self) -> None:
        self._batches = 0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Return memory after a step, when its tensors are free."""
        self._batches += 1
        if self._batches % STEPS == 0 and pl_module.device.type == "cpu":
            give_back_freed()
