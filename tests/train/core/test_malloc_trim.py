"""What a training on a CPU has freed goes back to the system."""

import itertools
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from train_helpers import train

from grls.train.core import trainer as heap
from grls.train.core.trainer import Memory, memory

FILLED = """
import ctypes
from pathlib import Path
from grls.io.progress import give_back_freed
from grls.train.core.trainer import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

def holes():
    now = memory()
    return now.held - now.used

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
full, before = resident(), holes() >> 20
for block in blocks:
    library.free(block)
freed, after = resident(), holes() >> 20
assert give_back_freed()
print(full - freed, freed - resident(), after - before, (holes() >> 20) - before)
"""


@pytest.mark.skipif(memory() is None, reason="this C library does not say what is in use")
def test_holes_are_known_and_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    by_itself, given_back, grown, left = map(int, done.stdout.split())
    assert by_itself < 64
    assert given_back > 192
    assert grown > 192
    assert left <= 16


def test_other_c_libraries_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not heap.give_back_freed()


@pytest.mark.parametrize(
    ("held", "returned"), [((1 << 20, 7 << 30), 4), ((6 << 30, 6 << 30), 0), ((None,), 2)]
)
def test_a_training_does_so_when_it_holds_more_than_a_batch_needs_or_it_is_unknown(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: tuple[int | None, ...], returned: int
) -> None:
    """Ten passages, four a batch: three steps an epoch, and three epochs."""
    times: list[bool] = []
    known = itertools.cycle(held)

    def now() -> Memory | None:
        if sys._getframe(1).f_code.co_name == "on_before_backward":
            return Memory(4 << 30, 5 << 30)
        value = next(known)
        return None if value is None else Memory(2 << 30, value)

    monkeypatch.setattr(heap, "ROOM", 2 << 30)
    monkeypatch.setattr(heap, "STEPS", 4)
    monkeypatch.setattr(heap, "memory", now)
    monkeypatch.setattr(heap, "give_back_freed", lambda: times.append(True))
    train("memorise", data, tmp_path / "run")
    assert len(times) == returned
