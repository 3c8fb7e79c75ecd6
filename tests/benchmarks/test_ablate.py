"""The ablations: every run is made once, with the settings its row says, and made again where they differ."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ablate
from benchmarks.ablate import questions
from grls.cli import main as grls
from grls.models.load import build


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are run."""
    made: list[list[str]] = []

    def record(command: list[str]) -> int:
        made.append(list(command))
        return grls(command)

    monkeypatch.setattr(ablate, "grls", record)
    return made


def run(quotes: Path, output: Path, **options: Any) -> None:
    given = {"limit": 1, "max_new_tokens": 40, "device": "cpu", "batch_size": 2} | options
    ablate.main(str(quotes / "data"), str(quotes / "model"), str(output), **given)


def test_all_runs_are_made_and_tabled_and_made_once(
    quotes: Path, tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    loaded = []
    load = build._load
    monkeypatch.setattr(build, "_load", lambda *a: loaded.append(a) or load(*a))
    output = tmp_path / "ablations"
    run(quotes, output)
    assert len(commands) == len({run.name for q in questions() for _, run in q.runs}) == 13
    assert len(loaded) == 1
    assert build._shared is None
    text = (output / "ablations.md").read_text(encoding="utf-8")
    assert text.count("\n## ") == 5
    assert text in capsys.readouterr().out
    assert "| beam | Hits@1 | Hits@5 | F1 " in " ".join(text.split())
    figures = json.loads((output / "ablations.json").read_text())["runs"]
    reference = figures["riches-sentence-10-adaptive-keywords"]
    assert (reference["hits@1"], reference["exact_match"], reference["queries"]) == (1.0, 1.0, 1)
    assert figures["closed-book"]["quotes"] == 0.0
    assert figures["bm25-read-1"]["hits@1"] == 1.0

    commands.clear()
    run(quotes, output)
    assert commands == []
    assert (output / "ablations.md").read_text(encoding="utf-8") == text


def test_what_differs_is_made_again(
    quotes: Path, tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    only: Any = ("Keywords before each quote",)
    with_, without = "riches-sentence-10-adaptive-keywords", "riches-sentence-10-adaptive-nokeywords"

    def made(**options: Any) -> list[str]:
        commands.clear()
        run(quotes, tmp_path, only=only, **options)
        return [next(o[7:] for o in command if o.startswith("--name=")) for command in commands]

    assert made() == [with_, without]
    assert commands[1][:2] == ["answer", "riches"]
    assert {"--prompt.keywords=false", "--limit=1", "--search.max_new_tokens=40"} <= set(commands[1])
    assert made(max_new_tokens=41) == [with_, without]
    assert 'made again: options was {"' in capsys.readouterr().out
    assert made(max_new_tokens=41, limit=None) == [with_, without]  # other options and other queries
    (tmp_path / f"{without}.settings.json").unlink()  # killed before its end
    assert made(max_new_tokens=41, limit=None) == [without]
    answers = tmp_path / f"{with_}.answers.jsonl"
    answers.write_text(answers.read_text() + "\n")
    assert made(max_new_tokens=41, limit=None) == [with_]
    assert "its answers have changed" in capsys.readouterr().out


def test_its_command_line(
    quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--data", str(quotes / "data"), "--model", "m", "--output", str(tmp_path / "out")]
    only = '["Beam size"]'
    monkeypatch.setattr("sys.argv", ["ablate", *given, "--limit", "1", "--only", only, "--dry_run", "true"])
    runpy.run_path(ablate.__file__, run_name="__main__")
    assert capsys.readouterr().out.count("grls answer riches --data=") == 3


def test_what_fails_ends_it(
    quotes: Path, tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="the command above failed"):
        run(quotes, tmp_path, max_new_tokens=9999)
    assert len(commands) == 1
    assert list(tmp_path.glob("*.settings.json")) == []
    with pytest.raises(SystemExit, match="no table 'Beams'"):
        run(quotes, tmp_path, only=("Beams",))
