"""What Windows and macOS do otherwise: paths, encodings, line ends."""

import io
import os
import re
import sys
from pathlib import Path

from fixture_types import Patch

from grls.cli import main
from grls.retrieve.spec import relative

ROOT = Path(__file__).parents[2]


MACHINES = re.compile(
    r"""\.(?:read_text|write_text)\((?!.*encoding=)   # else it is the code page of the machine
    |\.open\("[rwax]"(?!.*encoding=)
    |\.open\("w"(?!.*newline=)                       # else a line ends in two characters
    |\bstr\([\w.]+\.relative_to\([\w.]+\)\)           # its backslashes are no path elsewhere
    """,
    re.VERBOSE,
)
"""What makes a file another one on Windows."""


def test_files_are_the_same_on_every_system() -> None:
    lines = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for folder in ("grls", "data_prep")
        for file in (ROOT / folder).rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if MACHINES.search(line)
    ]
    assert lines == []


def test_a_member_on_another_drive_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: Patch) -> None:
    def other_drive(*paths: object) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    assert relative(tmp_path / "a", tmp_path / "b") == "../a"
    monkeypatch.setattr(os.path, "relpath", other_drive)
    assert relative(tmp_path / "a", tmp_path / "b") == (tmp_path / "a").resolve().as_posix()


def test_output_of_commands_is_utf8(monkeypatch: Patch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr("grls.__version__", "獺")
    assert main(["--version"]) == 0
    assert written.getvalue().decode() == "grls 獺\n"
