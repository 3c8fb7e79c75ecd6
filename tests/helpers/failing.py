"""What a command or a call must say when it fails."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grls.cli import main
from grls.errors import DataError


def fails(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of an error of ours, with which a command ends: exit code 1."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


def refuses(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints of an option that it does not know or cannot read: exit code 2."""
    assert main([str(a) for a in arguments]) == 2
    return capsys.readouterr().err


def names_fault(problem: str, file: Path, line: int | None, call: Any, *arguments: Any) -> None:
    """The call names file, line and problem (a pattern) in one line."""
    where = f"{file}: " if line is None else f"{file}, line {line}: "
    with pytest.raises(DataError, match=re.escape(where) + f".*{problem}") as caught:
        call(*arguments)
    assert (caught.value.file, caught.value.line) == (file, line)
    assert "\n" not in str(caught.value)


def raises(error: type[Exception], problem: str, call: Callable[..., Any], *given: Any, **named: Any) -> None:
    """The call raises such an error, whose text holds the problem (a pattern)."""
    with pytest.raises(error, match=problem):
        call(*given, **named)
