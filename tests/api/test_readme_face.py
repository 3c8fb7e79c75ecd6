"""The README's ten lines of Python run as they stand; without packaged models, which take minutes."""

import re
from pathlib import Path

import pytest

import grls
import grls.fitting.models
from grls.errors import ConfigError

ROOT = Path(__file__).parents[2]


def no_model(name: str) -> object:
    raise ConfigError(f"{name} is not here.")


def test_the_ten_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grls.fitting.models, "find_encoder", no_model)
    monkeypatch.setattr(grls.fitting.models, "find_writer", no_model)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len([line for line in block.splitlines() if line.strip()]) <= 16
    names: dict[str, object] = {}
    exec(block, names)
    hits = grls.load("runs/otters").search("what do otters eat?", k=5)
    assert (hits[0].id, hits[0].text) == ("0", "Otters eat fish.")
    assert grls.load("runs/mine").search("what do otters eat?", k=5) == hits
    printed = capsys.readouterr().out
    assert "Otters eat fish." in printed
    assert re.search(r"^\W*mine\b.*100", printed, re.MULTILINE)  # of the experiment
