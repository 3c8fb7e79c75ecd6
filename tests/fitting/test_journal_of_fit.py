"""The journal of a run, its clock, and its line of progress."""

import io
import json
import signal
import sys
import time
from math import inf
from pathlib import Path

import pytest

from grls.errors import ConfigError
from grls.fitting import journal
from grls.fitting.journal import CLOCK, FitClock, FitProgress, fit_journal
from grls.fitting.search import TimeIsUp
from grls.io.progress import Progress


def test_what_is_done_is_known_in_the_order_of_time(tmp_path: Path) -> None:
    first = fit_journal(tmp_path / "out", "d")
    first.put("one", {"seconds": 2.0, "x": (1, 2), "systems": []})
    first.put("two", {"seconds": 3.0, "systems": []})
    assert [first.known[name]["seconds"] for name in ("one", "two")] == [2.0, 3.0]
    first.close()

    again = fit_journal(tmp_path / "out", "d")
    assert again.known["one"] == {"seconds": 2.0, "x": [1, 2], "systems": []}
    assert [*again.known] == ["begin", "one", "two"]
    again.put("one", {"seconds": 1.0, "x": 9, "systems": []})
    again.close()

    third = fit_journal(tmp_path / "out", "d")
    assert [*third.known] == ["begin", "two", "one"]
    third.close()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not empty and holds no fit\.jsonl.*give another output"):
        fit_journal(tmp_path, "d")
    with pytest.raises(ConfigError, match="is a file"):
        fit_journal(tmp_path / "notes.txt", "d")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_clock_goes_on_after_what_an_earlier_call_has_spent(tmp_path: Path) -> None:
    now = [0.0]

    def clock(budget: float, adds: bool = False, begun: float | None = None) -> FitClock:
        return FitClock(tmp_path, budget, adds, begun, lambda: now[0])

    first = clock(100.0)
    assert first.left == 100.0
    now[0] = 20.0
    first.write(every=15.0)
    now[0] = 30.0
    first.write(every=15.0)  # too early
    assert json.loads((tmp_path / CLOCK).read_text()) == {"seconds": 20.0}
    first.write()
    assert (clock(100.0).left, clock(100.0, adds=True).left) == (70.0, 100.0)
    again = clock(100.0)
    now[0] = 200.0
    assert (again.left, again.seconds) == (0.0, 200.0)
    assert clock(inf).left == inf
    (tmp_path / CLOCK).write_text('{"seconds": "many"}')
    assert clock(100.0).left == 100.0
    assert clock(100.0, begun=170.0).left == 70.0  # a command counts its imports, too


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_stages_print_into_their_logs_and_the_line_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(journal, "_REDRAWN", 0.01)
    monkeypatch.setattr(journal, "EVERY", 0.01)
    shown = FitProgress(tmp_path, FitClock(tmp_path, 120.0))
    shown.best = "best so far bm25"
    with shown.stage("base"), Progress(8, "embed", "passages") as bar:
        print("much")
        print("more", file=sys.stderr)
        bar.update(2)
        line = shown.line()
        shown.say("in the middle")
        time.sleep(0.02)
        bar.update(0)
        assert "embed 2 of 8 passages" in stream.getvalue()
    assert line == "base: embed 2 of 8 passages; best so far bm25; 2 min left"
    with shown.stage("tune hybrid"):
        shown.at("train step 3 of 9")
        assert shown.line() == "tune hybrid: train step 3 of 9; best so far bm25; 2 min left"
    shown.say("done")
    assert capsys.readouterr().out == "in the middle\ndone\n"
    assert (tmp_path / "base.log").read_text() == "much\nmore\n"
    assert not (tmp_path / "tune-hybrid.log").exists()


def embedded(shown: FitProgress, allowance: float, passages: int) -> bool:
    """Whether passages that take a hundredth of a second each are embedded in that time."""
    try:
        with shown.stage("embed", allowance), Progress(passages, "embed", "passages") as bar:
            for _ in range(passages):
                time.sleep(0.01)
                bar.update()
    except TimeIsUp:
        return False
    return True


def test_a_stage_ends_when_its_time_is_up(tmp_path: Path) -> None:
    shown = FitProgress(tmp_path, FitClock(tmp_path), shown=False)
    assert not embedded(shown, 0.05, 200)
    assert embedded(shown, 60.0, 2)
    with shown.stage("train", 0.01), Progress(10, "embed", "texts") as bar:
        shown.at("train step 1 of 4")  # a training keeps to its time itself
        time.sleep(0.02)
        bar.update()


def test_what_is_no_loop_ends_as_well_and_a_training_does_not(tmp_path: Path) -> None:
    shown = FitProgress(tmp_path, FitClock(tmp_path), shown=False)
    with pytest.raises(TimeIsUp), shown.stage("open", 0.05):
        time.sleep(5.0)

    def wrapped() -> None:
        try:
            time.sleep(5.0)
        except TimeIsUp as error:
            raise ConfigError("an option") from error

    with pytest.raises(TimeIsUp), shown.stage("open", 0.05):
        wrapped()
    with shown.stage("train", 0.05):
        shown.at("train step 1 of 4")
        time.sleep(0.2)
    time.sleep(0.2)  # no timer is left


def test_the_timer_of_the_caller_goes_on(tmp_path: Path) -> None:
    shown, heard = FitProgress(tmp_path, FitClock(tmp_path), shown=False), list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    try:
        for seconds in (inf, 60.0):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with shown.stage("open", seconds):
                shown.at("train step 1 of 4")
            time.sleep(0.3)
            assert heard.pop() == signal.SIGALRM
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_loop_without_hope_ends_before_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_TELLING", 0.05)
    shown = FitProgress(tmp_path, FitClock(tmp_path), shown=False)
    assert not embedded(shown, 5.0, 100_000)


def test_nothing_is_shown_where_nothing_is_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = FitProgress(tmp_path, FitClock(tmp_path), shown=False)
    with shown.stage("train"):
        shown.say("a line")
    assert capsys.readouterr() == ("", "")
