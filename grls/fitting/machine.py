"""What a machine can do: cores, bfloat16, memory, GPU.

What counts is what this process may use: the cores of its affinity and of its control group, and the memory
that is free within them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from grls.errors import ConfigError

_GROUP = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """What a machine can do: cores that this process may use, bfloat16 on the device that trains, free main
    memory in GiB (None: unknown), name of the GPU (empty: none is used) and its memory in GiB.
    """

    cores: int
    bfloat16: bool
    memory: float | None
    gpu: str
    gpu_memory: float

    @property
    def precision(self) -> str:
        """The precision for training and search: bfloat16 where it is fast."""
        return "bfloat16" if self.bfloat16 else "float32"

    def line(self) -> str:
        """What the machine can do, for people."""
        memory = "" if self.memory is None else f", {self.memory:.0f} GiB memory free"
        gpu = f"{self.gpu} ({self.gpu_memory:.0f} GiB), " if self.gpu else "no GPU, "
        bits = "bfloat16" if self.bfloat16 else "no bfloat16"
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return f"{gpu}{cores}, {bits}{memory}"


def this_machine(device: str = "auto") -> Machine:
    """The machine that this process runs on; the device ``auto`` is a GPU if there is one.

    Raises:
        ConfigError: The device cannot be used.
    """
    import torch

    from grls.models.precision import accelerator, has_bfloat16

    where = accelerator() if device == "auto" else torch.device(device)
    try:
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use device {device!r} ({reason}); choose cpu, or a GPU of this machine."
        ) from error
    gpu, room = "", 0.0
    if where.type == "cuda" and torch.cuda.is_available():
        known = torch.cuda.get_device_properties(where)
        gpu, room = str(known.name), known.total_memory / _GIB
    return Machine(usable_cores(), has_bfloat16(where), free_memory(), gpu, room)


def usable_cores() -> int:
    """The cores that this process may use: of its affinity, of its control group, of OMP_NUM_THREADS."""
    import torch

    known = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = len(known)
    quota = _read(_GROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, min(cores, torch.get_num_threads()) if os.environ.get("OMP_NUM_THREADS") else cores)


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


def _read(file: Path) -> str:
    """The text of a file of the kernel; empty if there is none."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
