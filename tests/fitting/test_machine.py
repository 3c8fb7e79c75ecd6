"""What a machine can do."""

import os
from pathlib import Path

import pytest
import torch

from grls.errors import ConfigError
from grls.fitting.models import Machine, this_machine
from grls.io import progress
from grls.io.progress import free_memory, usable_cores


def kernel(place: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """Files of the kernel in a folder of its own."""
    for name, text in files.items():
        (place / name.replace("_", ".", 1)).write_text(text)
    monkeypatch.setattr(progress, "_GROUP", place)
    monkeypatch.setattr(progress, "_MEMORY", place / "meminfo")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_cores_are_those_of_affinity_and_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    kernel(tmp_path, monkeypatch, cpu_max="max 100000\n")
    assert usable_cores() == 8
    kernel(tmp_path, monkeypatch, cpu_max="250000 100000\n")
    assert usable_cores() == 3


def test_memory_is_the_less_of_machine_and_control_group_or_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel(tmp_path / "missing", monkeypatch)
    assert free_memory() is None
    free = f"MemTotal: 99999999 kB\nMemAvailable: {8 * 2**20} kB\n"
    kernel(tmp_path, monkeypatch, meminfo=free)
    assert free_memory() == 8.0
    kernel(tmp_path, monkeypatch, meminfo=free, memory_max=str(6 * 2**30), memory_current=str(4 * 2**30))
    assert free_memory() == 2.0


def test_the_line_names_what_counts() -> None:
    one = Machine(2, True, 14.2, "", 0.0)
    assert one.line() == "no GPU, 2 cores, bfloat16, 14 GiB memory free"
    two = Machine(1, False, None, "H100", 79.6)
    assert two.line() == "H100 (80 GiB), 1 core, no bfloat16"
    assert (one.precision, two.precision) == ("bfloat16", "float32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot use device 'cuda:1' .* choose cpu"):
        this_machine("cuda:1")
