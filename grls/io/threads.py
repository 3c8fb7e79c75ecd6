"""Threads of numeric libraries on a machine that other processes use as well."""

from __future__ import annotations

import os

_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""OpenMP's threads sleep while they wait."""
_MAY_BE_BUSY_LATER = {"GOMP_SPINCOUNT": "1000"}
"""They spin for microseconds and then sleep: other processes may come later."""


def wait_asleep_if_busy() -> None:
    """Let OpenMP's threads sleep while they wait, if more processes want to run than there are cores.

    They spin otherwise, which keeps the cores from the threads that they wait for: a training beside other
    work becomes much slower. OpenMP reads the settings once, so this has to come before a numeric
    library is imported. Settings of the user stay as they are.
    """
    if not hasattr(os, "getloadavg"):
        return
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    for name, value in (_WAITING if busy else _MAY_BE_BUSY_LATER).items():
        os.environ.setdefault(name, value)
