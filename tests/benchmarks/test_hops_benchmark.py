"""The benchmark of searches compares two versions of the code."""

from pathlib import Path

import pytest

from benchmarks.hops import main

ROOT = Path(__file__).parents[2]


def test_both_versions_search_the_same_queries(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = tmp_path / "rival"
    rival.mkdir()
    for name in ("grls", "benchmarks"):  # another tree, of the same code
        (rival / name).symlink_to(ROOT / name)
    main(str(kinds / "generative"), str(kinds / "data"), str(rival), limit=2, k=2)
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    here, there = ([cell.strip() for cell in row] for row in rows[2:])
    assert [here[0], there[0]] == ["this code", "rival"]
    assert float(here[1]) > 0 < float(there[2])
    assert here[3:] == there[3:]
    assert float(here[3]) > 0
    assert here[-2:] == ["100.0", "100.0"]
