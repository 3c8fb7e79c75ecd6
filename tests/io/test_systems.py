"""What Windows and macOS do otherwise: paths, encodings, names in files, processes without fork."""

import ast
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fixture_types import Patch

from grls.cli import main
from grls.retrieve.spec import relative

ROOT = Path(__file__).parents[2]


def calls() -> Iterator[tuple[str, ast.Call]]:
    for file in (*(ROOT / "grls").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield f"{file.relative_to(ROOT)}, line {node.lineno}", node


def test_texts_name_encoding_and_line_ends() -> None:
    """Else those of Windows would be the code page of the machine, and two characters."""
    lacking, modes = [], {"r": {"encoding"}, "w": {"encoding", "newline"}, "a": {"encoding"}}
    for place, call in calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "write_text", "open"):
            mode = getattr(call.args[0], "value", None) if call.args else None
            needed = modes.get(str(mode), set()) if call.func.attr == "open" else {"encoding"}
            if needed - {keyword.arg for keyword in call.keywords}:
                lacking.append(place)
    assert lacking == []


def test_names_within_folders_are_written_with_slashes() -> None:
    written = re.compile(r"str\([^()]*\.relative_to\([^()]*\)\)")
    assert [place for place, call in calls() if written.fullmatch(ast.unparse(call))] == []


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
