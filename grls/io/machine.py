"""What this process may use of its machine: cores, memory, and threads that wait for their turn asleep.

What counts are the cores of its affinity and of its control group, and the memory that is free within them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_GIB = 2**30

_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""OpenMP's threads sleep while they wait."""
_MAY_BE_BUSY_LATER = {"GOMP_SPINCOUNT": "1000"}
"""They spin for microseconds and then sleep: other processes may come later."""


def usable_cores() -> int:
    """The cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(_GROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, cores)


def free_memory() -> float | None:
    """Main memory that is free, within the limit of the control group, in GiB; None: unknown."""
    free = [int(line.split()[1]) * 1024 for line in _read(_MEMORY).splitlines() if "MemAvailable" in line]
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    if limit.isdigit() and used.isdigit():
        free.append(int(limit) - int(used))
    return max(0, min(free)) / _GIB if free else None


def mean_load() -> float:
    """Mean number of processes that work in the last minute; 0 where it is unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def wait_asleep_if_busy() -> None:
    """Let OpenMP's threads sleep while they wait, if more processes want to run than there are cores.

    They spin otherwise, which keeps the cores from the threads that they wait for: a training beside other
    work becomes much slower. OpenMP reads the settings once, so this has to come before a numeric
    library is imported. Settings of the user stay as they are.
    """
    busy = mean_load() > usable_cores()
    for name, value in (_WAITING if busy else _MAY_BE_BUSY_LATER).items():
        os.environ.setdefault(name, value)


def _read(file: Path) -> str:
    """The text of a file of the kernel; empty if there is none."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
