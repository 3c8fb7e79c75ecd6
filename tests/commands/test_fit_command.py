"""``grls fit``: the command."""

import json
from pathlib import Path
from time import monotonic

import pytest
from failing import fails
from fit_helpers import write_fit_data
from fixture_types import Capsys

from grls.cli import main
from grls.fitting.journal import CLOCK

ALONE = ["--biencoder=none", "--generator=none", "--device=cpu", "--precision=float32", "--k=2"]


def test_a_plan_writes_nothing(tmp_path: Path, capsys: Capsys) -> None:
    data = write_fit_data(tmp_path / "data", "train")
    plan = ["fit", str(data), *ALONE, "--plan=true"]
    assert main([*plan, f"--output={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr().out
    assert "Stages" in printed
    assert "5 train, 4 dev" in printed
    assert [file.name for file in tmp_path.iterdir()] == ["data"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    assert main([*plan, f"--output={tmp_path / 'notes'}"]) == 1
    assert "is not empty and holds no fit.jsonl" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["a.txt"]


def test_a_run_says_what_it_does_and_what_it_keeps_and_goes_on(tmp_path: Path, capsys: Capsys) -> None:
    data = write_fit_data(tmp_path / "data")
    command = ["fit", str(data), f"--output={tmp_path / 'out'}", *ALONE]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("grls fit: reading the data")
    assert "  bm25: BM25\n" in printed  # what the names in the table stand for
    assert "kept: bm25" in printed
    assert len(printed.splitlines()) < 40
    assert main([*command, "--budget=+1h"]) == 0
    again = capsys.readouterr().out
    assert "this run goes on after bm25" in again
    all_done = "All is done: the page and the card are written anew."
    assert (all_done in printed, all_done in again) == (False, True)
    before = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert main([*command, "--plan=true", "--seed=3"]) == 0
    assert {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()} == before
    assert "there is no candidate 'dense'; there are bm25" in fails(capsys, *command, "--keep=dense")


def test_the_budget_counts_from_the_start_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_fit_data(tmp_path / "data")
    monkeypatch.setattr("grls.commands.fit.monotonic", lambda: monotonic() - 500.0)  # slow imports
    assert main(["fit", str(data), f"--output={tmp_path / 'out'}", *ALONE]) == 0
    assert json.loads((tmp_path / "out" / CLOCK).read_text())["seconds"] > 500.0
