"""What a training on a CPU has freed goes back to the system."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from train_helpers import train

from grls.train.core import trainer as heap

FILLED = """
import ctypes
from pathlib import Path
from grls.io.progress import give_back_freed

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.free(library.malloc(24 << 20))  # from now on blocks below that come from the heap
blocks, pins = [], []
for _ in range(256):
    blocks.append(library.malloc(1 << 20))
    ctypes.memset(blocks[-1], 1, 1 << 20)
    pins.append(library.malloc(4096))  # and stays, so the heap's end never comes free
"""
PROGRAM = f"""{FILLED}
full = resident()
for block in blocks:
    library.free(block)
freed = resident()
assert give_back_freed()
print(full - freed, freed - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such heap")
def test_holes_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    by_itself, given_back = map(int, done.stdout.split())
    assert by_itself < 64
    assert given_back > 192


def test_other_c_libraries_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not heap.give_back_freed()


def test_a_training_does_so_every_few_batches(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten passages, four a batch: three steps an epoch, and three epochs."""
    times: list[bool] = []
    monkeypatch.setattr(heap, "STEPS", 4)
    monkeypatch.setattr(heap, "give_back_freed", lambda: times.append(True))
    train("memorise", data, tmp_path / "run")
    assert len(times) == 2
