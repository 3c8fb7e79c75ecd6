"""The code of docs/python.md runs as it stands there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_runs(kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    for name, kind in (("generator", "generative"), ("dense", "dense")):
        (tmp_path / "runs" / name).symlink_to(kinds / kind)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec("\n".join(blocks), names)
    assert len(blocks) >= 7
    assert names["again"].search("is the otter calm ?")  # type: ignore[attr-defined]
