"""The short form of ``python -m benchmarks.soak``: nothing is wrong and nothing lost while all goes wrong."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import grls
from benchmarks.soak import samples_of, soak


def test_no_request_is_lost_while_threads_are_killed_and_versions_change(kinds: Path) -> None:
    folder = str(kinds / "generative")
    samples = samples_of(grls.load(folder, device="cpu"))
    run, _ = soak(folder, samples, 0, requests=400, clients=8, reload=1.5, kills=3)
    assert run.faults == []
    assert run.counts["right"] + run.counts["cancelled"] == 400
    assert run.counts["kills"] == 3
    assert run.counts["cancelled"] > 10
    assert len(run.memory) == 2
