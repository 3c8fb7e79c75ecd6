"""Temporary folders go with the object that they belong to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from failing import raises

from grls.api.searcher import HeldFolder
from grls.errors import WriteError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


SCRIPT = """
import sys, tempfile
from grls.api.searcher import HeldFolder
tempfile.tempdir = sys.argv[1]
owner = HeldFolder()
print(owner.path, flush=True)
"""


def run_script(place: Path, more: str = "", code: int = 0) -> Path:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT + more, str(place)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stderr
    return Path(ran.stdout.strip())


def test_a_folder_goes_at_the_end_of_the_process(place: Path) -> None:
    assert not run_script(place).exists()


def test_what_a_killed_process_left_goes_with_the_next_folder(place: Path) -> None:
    left = run_script(place, "import os; os.kill(os.getpid(), 9)", code=-9)
    assert left.is_dir()
    live = HeldFolder()
    assert not left.exists()
    HeldFolder()
    assert live.path.is_dir()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_leaves_the_folders_of_its_parent(place: Path) -> None:
    more = "import os, gc\nif not os.fork():\n    del owner; gc.collect(); os._exit(0)\nos.wait()\n"
    kept = run_script(place, more + "import pathlib; assert list(pathlib.Path(sys.argv[1]).iterdir())\n")
    assert not kept.exists()


def test_a_place_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    (place / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(place / "file" / "below"))
    raises(WriteError, r"cannot make a temporary folder.*TMPDIR", HeldFolder)
