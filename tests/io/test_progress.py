"""What is told of a long loop, and threads that wait asleep on a busy machine."""

import io
import os
import re
import shutil
import sys
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest
from composite_specs import write_spec
from fixture_types import Capsys

from grls.cli import main
from grls.data.corpus import Corpus
from grls.io import progress
from grls.io.progress import Progress, reporting, showing, telling_of_imports, wait_asleep_if_busy, waiting
from grls.retrieve.bm25 import BM25Retriever


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    assert progress._open == []  # every loop before has ended
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_there_is_a_line_a_minute(clock: list[float], capsys: Capsys) -> None:
    with Progress(1000, "embed", "passages", done=100) as bar:
        for _ in range(9):
            clock[0] += 20
            bar.update(100)
    assert capsys.readouterr().err.splitlines() == [
        "embed 400 of 1,000 passages, 5.00 a second, 2 min left",
        "embed 700 of 1,000 passages, 5.00 a second, 60 s left",
        "embed 1,000 of 1,000 passages, 5.00 a second, 0 s left",
    ]


def test_a_loop_within_another_names_it_and_shares_its_minute(clock: list[float], capsys: Capsys) -> None:
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


def test_a_run_of_many_steps_hears_of_its_loops_which_show_nothing(
    clock: list[float], capsys: Capsys
) -> None:
    heard = []
    with reporting(lambda loop: heard.append(loop.standing())), showing():
        with Progress(4, "embed", "passages", done=1) as bar, waiting("sort 5 passages"):
            clock[0] += 100
            bar.update(2)
        with Progress(2, "silent", "x", shown=False):
            pass
    assert heard == ["embed 1 of 4 passages", "embed 3 of 4 passages", "silent 0 of 2 x"]
    assert capsys.readouterr().err == ""
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


@pytest.fixture(scope="module")
def folder(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in ``data``, a generative retriever in ``retriever``, with a prior in ``hybrid``."""
    path = tmp_path_factory.mktemp("progress")
    shutil.copytree(kinds / "data", path / "data")
    shutil.copytree(kinds / "generative", path / "retriever")
    priors = [{"retriever": "bm25"}]
    write_spec(path / "hybrid", "hybrid", {"generator": "../retriever", "priors": priors})
    return path


SHOWN = {
    "chains": (
        ["tune", "{retriever}", "--hops.steps=dynamic", "--grid.done_biases=[0, 1]"],
        r"tune with 0 of 2 searches; hop 1 \d+ of .* left\n",
    ),
    "priors": (
        ["tune", "{hybrid}", "--grid.prior_weights=[1, 2]"],
        r"tune with at most 1 of 11 searches; retrieve \d+ of .* left\n",
    ),
    "retrieve": (["retrieve", "bm25", "--output={out}"], r"bm25 1 of \d+ queries, .* left\n"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_command_tells_of_its_inner_searches(
    what: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    command, line = SHOWN[what]
    places = {name: str(folder / name) for name in ("retriever", "hybrid")}
    given = [f"--data={folder / 'data'}", "--device=cpu", "--split=train"]
    assert main([*(word.format(out=tmp_path / "out", **places) for word in command), *given]) == 0
    told = capsys.readouterr().err
    assert re.search(line, told)
    assert progress._open == []


def test_loops_show_themselves_within_a_command_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    retriever = BM25Retriever(Corpus.read(folder / "data"))
    retriever.retrieve(["otter", "lynx"], 1)
    assert capsys.readouterr().err == ""
    with showing():
        retriever.retrieve(["otter", "lynx"], 1)
        with Progress(5, "hidden", "x", shown=False) as bar:
            bar.update()
    told = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["bm25 1 of 2 queries", "bm25 2 of 2 queries"]


NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def settings(monkeypatch: pytest.MonkeyPatch, load: float, **own: str) -> list[str | None]:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(progress, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "environ", dict(own))
    wait_asleep_if_busy()
    return [os.environ.get(name) for name in NAMES]


def test_threads_sleep_where_more_wants_to_run_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch, 2.5) == ["PASSIVE", "0"]
    assert settings(monkeypatch, 1.5) == [None, "1000"]  # others may come later


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch, 9.0, OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", "0"]


@pytest.mark.parametrize("importing", [True, False])
def test_a_long_import_is_told_at_a_terminal(monkeypatch: pytest.MonkeyPatch, importing: bool) -> None:
    spec = SimpleNamespace(_initializing=importing)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__spec__=spec))
    monkeypatch.setitem(sys.modules, "transformers", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with telling_of_imports(0.0):
        sleep(0.2)
    assert ("loading PyTorch" in terminal.getvalue()) == importing
