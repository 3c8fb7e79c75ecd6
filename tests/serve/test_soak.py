"""The short form of ``python -m benchmarks.soak``: nothing is wrong and nothing lost while all goes wrong."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from benchmarks.soak import soak


def test_no_request_is_lost_while_workers_are_killed_and_versions_change(kinds: Path) -> None:
    texts = [
        f"is the {animal} {trait} ?" for animal in ("otter", "lynx", "heron") for trait in ("calm", "quick")
    ]
    one, _ = soak(str(kinds / "generative"), texts, 3, requests=400, clients=8, reload=1.5, kills=3)
    counts = one.counts
    assert counts["right"] + counts["cancelled"] == 400
    assert counts["wrong"] == counts["lost"] == counts["other status"] == counts["failed reloads"] == 0
    assert counts["kills"] == 3
    assert counts["cancelled"] > 10
    assert len(one.memory) == 3
