"""The journal of a run, its clock, its line of progress, and what there is time to compare."""

import io
import sys
from pathlib import Path

import pytest

from grls.errors import ConfigError, MismatchError, WriteError
from grls.fitting import progress
from grls.fitting.clock import FitClock
from grls.fitting.comparing import Pace, affordable
from grls.fitting.journal import FitJournal
from grls.fitting.progress import FitProgress
from grls.io.progress import Progress


def test_what_is_done_is_known_until_something_before_it_changes(tmp_path: Path) -> None:
    journal = FitJournal(tmp_path / "out", {"data": "d"})
    assert journal.done("one", {"a": 1}) is None
    journal.add("one", {"a": 1}, 2.0, {"x": (1, 2)})
    journal.add("two", {}, 3.0, {"y": 1})
    assert (journal.seconds, journal.of("two"), journal.step_seconds()) == (
        5.0,
        3.0,
        {"one": 2.0, "two": 3.0},
    )
    journal.close()

    again = FitJournal(tmp_path / "out", {"data": "d"})
    assert again.done("one", {"a": 1}) == {"x": [1, 2]}
    assert again.done("two", {}) == {"y": 1}
    assert not again.ended
    again.end()
    again.close()

    other = FitJournal(tmp_path / "out", {"data": "d"})
    assert other.ended
    assert other.done("one", {"a": 2}) is None
    assert other.done("one", {"a": 1}, lambda result: "z" in result) is None  # its files are gone
    other.add("one", {"a": 1}, 1.0, {"x": 9})
    assert other.done("two", {}) is None  # it rests on another result now
    other.close()


def test_two_runs_at_once_in_one_process_are_refused(tmp_path: Path) -> None:
    first, second = FitJournal(tmp_path / "out", {"k": 5}), FitJournal(tmp_path / "out", {"k": 5})
    first.begin()
    with pytest.raises(WriteError, match=r"fit\.jsonl is being written by another run: wait for it"):
        second.begin()
    for k in (5, 6):  # with other options neither is what is there taken away
        with pytest.raises(WriteError, match=r"fit\.jsonl is being written by another run: wait for it"):
            FitJournal(tmp_path / "out", {"k": k})
    first.add("one", {}, 1.0, {})
    first.close()
    with pytest.raises(MismatchError, match="holds a run of other k"):
        FitJournal(tmp_path / "out", {"k": 6})
    FitJournal(tmp_path / "out", {"k": 5}).close()  # the one that was refused holds nothing


def test_other_data_or_options_are_refused_by_name_with_the_remedy(tmp_path: Path) -> None:
    journal = FitJournal(tmp_path / "out", {"data": "d", "k": 5, "budget": None})
    journal.add("one", {}, 1.0, {})
    journal.close()
    with pytest.raises(MismatchError) as error:
        FitJournal(tmp_path / "out", {"data": "e", "k": 5, "budget": "3m"})
    assert str(error.value) == (
        f'{tmp_path / "out"} holds a run of other budget (null, now "3m"), data: call again with the same '
        "ones to go on, or give another output."
    )


def test_another_budget_is_refused_with_what_can_be_begun_with(tmp_path: Path) -> None:
    """The plan had advised that budget, and the error said no more than "give another output"."""
    out = tmp_path / "out"
    journal = FitJournal(out, {"data": "d", "budget": "15m"})
    journal.add("biencoder dense", {}, 9.0, {"model": "stages/biencoder/model"})
    journal.close()

    def refused() -> str:
        with pytest.raises(MismatchError) as error:
            FitJournal(out, {"data": "d", "budget": "62m"})
        return str(error.value)

    said = f'{out} holds a run of other budget ("15m", now "62m"): call again with the same budget to go on, '
    assert refused() == said + "or give another output for the other one."
    (out / "stages" / "biencoder" / "model").mkdir(parents=True)
    begun = f"which may begin with what is trained here: --biencoder {out / 'stages/biencoder/model'}"
    assert refused() == said + f"or give another output for the other one, {begun}"
    journal = FitJournal(out, {"data": "d", "budget": "15m"})
    journal.end()
    journal.close()
    assert "with the same budget to read its result" in refused()


def test_work_that_was_done_is_kept_whatever_the_first_line_says(tmp_path: Path) -> None:
    journal = FitJournal(tmp_path / "out", {"k": 5})
    journal.add("one", {}, 1.0, {})
    journal.close()
    file = tmp_path / "out" / "fit.jsonl"
    with pytest.raises(MismatchError, match=r"of other deep \(no such option, now null\)"):
        FitJournal(tmp_path / "out", {"k": 5, "deep": None})
    head, *records = file.read_text().splitlines()
    file.write_text("\n".join([head[:-1] + ', "more": 1}', *records, ""]))
    before = file.read_bytes()
    with pytest.raises(MismatchError, match="begun with other settings"):
        FitJournal(tmp_path / "out", {"k": 5})
    assert file.read_bytes() == before


def test_a_run_of_other_options_that_has_done_next_to_nothing_is_begun_anew(tmp_path: Path) -> None:
    journal = FitJournal(tmp_path / "out", {"biencoder": "typo"})
    journal.begin()
    journal.add("data", {}, 1.0, {"x": 1})
    journal.close()
    journal = FitJournal(tmp_path / "out", {"biencoder": "right"})
    assert journal.seconds == 0
    journal.begin()
    assert journal.done("data", {}) is None
    journal.close()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timing.json").write_text("{}")  # of a plan that was only printed
    FitJournal(tmp_path, {}).close()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not empty and holds no fit\.jsonl.*give another output"):
        FitJournal(tmp_path, {})
    with pytest.raises(ConfigError, match="is a file"):
        FitJournal(tmp_path / "notes.txt", {})


def test_a_stage_may_take_what_later_ones_do_not_need() -> None:
    now = [0.0]
    clock = FitClock(100.0, 7.0, lambda: now[0])
    assert clock.left == pytest.approx(90.0)
    assert clock.allowance(20, 30) == pytest.approx(60)  # more than its estimate
    assert clock.allowance(100, 80) == pytest.approx(50)  # short of time: all get the same share
    now[0] = 200.0
    assert (clock.left, clock.allowance(1, 1), clock.seconds) == (0.0, 0.0, 207.0)
    free = FitClock(None, 0.0, lambda: now[0])
    assert (free.left, free.allowance(1, 1)) == (None, None)


PACES = {"bm25": Pace(1, 0.01), "dense": Pace(2, 0.1), "hybrid": Pace(5, 1.0)}


@pytest.mark.parametrize(
    ("seconds", "systems", "counts"),
    [
        (1000, ["bm25", "dense", "hybrid"], {"tune": 100, "dev": 100, "test": 300}),
        (400, ["bm25", "dense", "hybrid"], {"tune": 88, "dev": 88, "test": 177}),
        (60, ["bm25", "dense", "hybrid"], {"tune": 11, "dev": 11, "test": 24}),
        (30, ["bm25", "dense"], {"tune": 61, "dev": 61, "test": 123}),
        (0, ["bm25"], {"tune": 10, "dev": 10, "test": 10}),
    ],
)
def test_queries_and_then_systems_are_left_out_for_want_of_time(
    seconds: float, systems: list[str], counts: dict[str, int]
) -> None:
    share = affordable(PACES, {"tune": 100, "dev": 100, "test": 300}, seconds)
    assert share.systems == systems
    assert share.counts == counts
    spent = sum(PACES[s].opening + PACES[s].query * sum(share.counts.values()) for s in share.systems)
    assert spent <= seconds or not seconds


def test_without_test_queries_dev_gets_all_the_time() -> None:
    assert affordable(PACES, {"dev": 100}, 8 + 55.6).counts == {"dev": 50}
    assert affordable(PACES, {"dev": 4}, 0).counts == {"dev": 4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_stages_print_into_their_logs_and_the_line_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_REDRAWN", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    shown = FitProgress(tmp_path)
    shown.expect({"train": 100.0, "tune hybrid": 20.0})
    with shown.stage("train"), Progress(8, "embed", "passages") as bar:
        print("much")
        print("more", file=sys.stderr)
        bar.update(2)
        line = shown.line()
        while "embed 2 of 8 passages" not in stream.getvalue():
            pass
    assert line == "[1/2] train: embed 2 of 8 passages, about 2 min left for all"
    with shown.stage("tune hybrid"):
        shown.at(0.5, "half")
        assert shown.line() == "[2/2] tune hybrid: half, about 20 s left for all"
    shown.say("done")
    assert capsys.readouterr().out == "done\n"
    assert (tmp_path / "train.log").read_text() == "much\nmore\n"
    assert not (tmp_path / "tune-hybrid.log").exists()


def test_a_loop_that_ends_is_not_the_end_of_its_stage(tmp_path: Path) -> None:
    shown = FitProgress(tmp_path, shown=False)
    shown.expect({"train": 3600.0})
    with shown.stage("train"):
        with Progress(4, "embed", "passages") as bar:
            bar.update(4)
            assert shown.line() == "[1/1] train: embed 4 of 4 passages, about 60 min left for all"
        with Progress(1, "search", "queries") as bar:
            bar.update()
            assert "search" not in shown.line()


def test_the_step_of_a_training_is_shown_and_not_the_short_loops_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = FitProgress(tmp_path, shown=False)
    shown.expect({"generator": 3600.0})
    with shown.stage("generator"):
        shown.at(0.25, "train step 100 of 400")
        with Progress(16, "embed", "texts") as bar:
            bar.update(16)
            assert shown.line().startswith("[1/1] generator: train step 100 of 400, ")
        monkeypatch.setattr(progress, "_SHORT", -1.0)
        with Progress(60, "retrieve", "inputs") as bar:
            bar.update()
            assert shown.line().startswith("[1/1] generator: retrieve 1 of 60 inputs, ")


def test_nothing_is_shown_where_nothing_is_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = FitProgress(tmp_path, shown=False)
    with shown.stage("train"):
        shown.say("a line")
    assert capsys.readouterr() == ("", "")
