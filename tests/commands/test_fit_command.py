"""``grls fit``: the command."""

from pathlib import Path

import pytest
from fit_helpers import write_fit_data

from grls.cli import main

ALONE = ["--biencoder=none", "--generator=none", "--device=cpu", "--precision=float32", "--k=2"]


def test_a_plan_alone_leaves_nothing_but_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_fit_data(tmp_path / "data", "train")
    command = ["fit", str(data), f"--output={tmp_path / 'out'}", *ALONE]
    assert main([*command, "--plan=true"]) == 0
    printed = capsys.readouterr().out
    assert "Stages" in printed
    assert "8 train, 1 dev" in printed
    assert f"The speeds are kept in {tmp_path / 'out' / 'timing.json'}" in printed
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["timing.json"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data", "out"]


def test_a_plan_writes_nothing_into_a_folder_that_a_run_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan of other options once replaced the speeds of a run, which then went on with another plan."""
    data = write_fit_data(tmp_path / "data")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    plan = ["fit", str(data), *ALONE, "--plan=true"]
    assert main([*plan, f"--output={tmp_path / 'notes'}"]) == 1
    assert "is not empty and holds no fit.jsonl" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["a.txt"]
    run = ["fit", str(data), f"--output={tmp_path / 'run'}", *ALONE]
    assert main(run) == 0
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    capsys.readouterr()
    assert main([*plan, f"--output={tmp_path / 'run'}", "--seed=3"]) == 1
    assert "holds a run of other seed (0, now 3)" in capsys.readouterr().err
    assert main([*run, "--plan=true"]) == 0
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_a_run_says_what_it_does_and_what_it_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_fit_data(tmp_path / "data")
    command = ["fit", str(data), f"--output={tmp_path / 'out'}", *ALONE]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "kept: bm25" in printed
    assert len(printed.splitlines()) < 40
    assert main(command) == 0
    assert "this run is done" in capsys.readouterr().out
    assert main([*command, "--budget=1h"]) != 0
    assert "holds a run of other budget" in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    printed = capsys.readouterr().out
    assert all(f"--{name}" in printed for name in ("budget", "biencoder", "generator", "k", "plan", "seed"))
