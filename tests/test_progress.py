"""What is told of a long loop."""

import io
import sys

import pytest

from grls import progress
from grls.progress import Progress, duration, waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    assert progress._open == []  # every loop before has ended
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_there_is_a_line_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(1000, "embed", "passages", done=100) as bar:
        for _ in range(9):
            clock[0] += 20
            bar.update(100)
    assert capsys.readouterr().err.splitlines() == [
        "embed 400 of 1,000 passages, 5.00 a second, 2 min left",
        "embed 700 of 1,000 passages, 5.00 a second, 60 s left",
        "embed 1,000 of 1,000 passages, 5.00 a second, 0 s left",
    ]


def test_a_loop_within_another_names_it_and_shares_its_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(4, "retrieve", "queries") as outer:
        for _ in range(2):
            with Progress(2, "decode", "inputs") as inner, Progress(9, "silent", "x", shown=False) as none:
                none.update()
                for _ in range(2):
                    clock[0] += 30
                    inner.update()
            outer.update(2)
    assert capsys.readouterr().err.splitlines() == [
        "retrieve 0 of 4 queries; decode 2 of 2 inputs, 0.03 a second, 0 s left",
        "retrieve 2 of 4 queries; decode 2 of 2 inputs, 0.03 a second, 0 s left",
    ]
    assert progress._open == []


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with Progress(3, "embed", "passages", done=1) as bar:
        bar.update(5)
    assert "embed:" in shown.getvalue()
    assert "1/3" in shown.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_what_has_no_loop_is_told_of(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with waiting("sort 5 passages"):
        for _ in range(500):
            if "sort 5 passages" in stream.getvalue():
                break
            progress.Event().wait(0.01)
    assert "sort 5 passages" in stream.getvalue()
    before = stream.getvalue()
    progress.Event().wait(0.05)
    assert stream.getvalue() == before


def test_durations() -> None:
    assert [duration(seconds) for seconds in (3.2, 100, 5460, 11100)] == [
        "3 s",
        "2 min",
        "1 h 31 min",
        "3 h 05 min",
    ]
