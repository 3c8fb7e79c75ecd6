"""The C library's heap in trainings on a CPU, which would grow for as long as they last.

Inputs differ in length, so tensors of all sizes come and go, and the heap that glibc takes them from is soon
full of holes that the next one does not fit into. To have every large tensor from the system instead (a fixed
``MALLOC_MMAP_THRESHOLD_``) keeps it small as well, but the system clears what it gives, and a step takes a
quarter longer. Here the holes go back to the system from time to time.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import lightning as L

STEPS = 50
"""Batches between two times: a heap grows by tens of MiB a batch; what was given back costs time again."""


def give_back_freed() -> bool:
    """Give all pages of this process to the system that hold nothing.

    Returns:
        Whether there was anything to give back; False with another C library than glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return bool(ctypes.CDLL(None).malloc_trim(0))


class GiveBackFreed(L.Callback):
    """Does so every :data:`STEPS` batches, where the model is on a CPU."""

    def __init__(self) -> None:
        self._batches = 0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After the step: what it computed is free."""
        self._batches += 1
        if self._batches % STEPS == 0 and pl_module.device.type == "cpu":
            give_back_freed()
