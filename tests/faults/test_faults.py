"""The short form of the fault harness; the long one is ``make faults``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from damage import HARMLESS, REFUSED, Damager
from fault_folders import write_indexes

RUN = Path(__file__).with_name("run.py")
KINDS = ("bm25", "dense", "changed", "hybrid", "rescored", "link", "embedded")


def test_what_is_damaged_is_refused_or_answers_as_before(every_kind: Path, tmp_path: Path) -> None:
    """A sample; the files of indexes and manifests, which are the quickest, more often."""
    place = Path(shutil.copytree(every_kind, tmp_path / "kinds"))
    damager = Damager(place, seed=1, flips=4)
    damager.run({name: place / name for name in KINDS}, share=0.05)
    damager.run(write_indexes(place), share=0.3)
    wrong = [one for one in damager.results if one.outcome not in (REFUSED, HARMLESS)]
    assert wrong == []
    assert len(damager.results) > 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in forked processes")
def test_killed_and_hindered_commands_lose_nothing() -> None:
    """In a process that has no other thread, which a forked process would lack."""
    some = ["index update", "retrieve bm25", "tune fusion"]
    paths = os.pathsep.join([str(RUN.parents[2]), str(RUN.parents[1] / "helpers")])
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = os.environ | alone | {"PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, str(RUN), "--kills=3", "--trials=1", "--damages=0", "--only", *some],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "| kill -9 | 3 | 3 |" in done.stdout
