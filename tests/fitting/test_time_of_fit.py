"""A run keeps to its budget where a single step is too long: what cannot be done in time is left out."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data, write_fit_models
from test_run_fit import Killed, killed_at, known

from grls.errors import ConfigError
from grls.fitting import comparing, folders, planner, run, steps, timing, tuning
from grls.fitting.clock import FitClock, TimeIsUp
from grls.fitting.facts import data_facts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModels, find_encoder
from grls.fitting.options import FitOptions
from grls.fitting.plan import Stage
from grls.fitting.progress import FitProgress, shown_name
from grls.fitting.run import fit_dataset
from grls.fitting.timing import measured_speeds
from grls.fitting.work import FitWork
from grls.io.progress import Progress

HOUR = 3600.0


class FakeTime:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def loop(self, steps: int, each: float) -> None:
        """A loop that tells of its steps, as the real ones do."""
        with Progress(steps, "embed", "texts", shown=None) as bar:
            for _ in range(steps):
                self.now += each
                bar.update()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(run, "FitClock", lambda budget, spent: FitClock(budget, spent, lambda: fake.now))
    monkeypatch.setattr(planner, "known_speeds", known)
    return fake


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("time")
    write_fit_data(root / "data")
    return root


@pytest.fixture(scope="module")
def options(place: Path) -> FitOptions:
    named = write_fit_models(place, place / "data")
    return fit_options(biencoder=named["biencoder"], generator="none", budget="1h")


def left_out(output: Path) -> dict[str, str]:
    content: dict[str, str] = json.loads((output / "fit.json").read_text())["plan"]["left_out"]
    return content


def test_a_stage_that_does_not_end_in_time_is_left_out(
    place: Path, options: FitOptions, tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "make_dense", lambda *_: time.loop(1000, 60.0))
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert time.now <= 1.1 * HOUR
    assert "dense" not in fitted.metrics
    assert "bm25" in fitted.metrics
    assert left_out(tmp_path / "out")["dense dense"] == "the time was up before it was done"
    again = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert again == fitted


def test_a_tuning_that_does_not_end_in_time_leaves_the_system_untuned(
    place: Path, options: FitOptions, tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_folder = tuning.tune_folder

    def slow(folder: Path, *more: Any) -> Any:
        if folder.name == "dense-hops":
            Path(f"{folder}.tune.jsonl").write_text("{}\n")
            time.loop(1000, 60.0)
        return tune_folder(folder, *more)

    monkeypatch.setattr(tuning, "tune_folder", slow)
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert time.now <= 1.1 * HOUR
    assert "bm25" in fitted.metrics
    assert left_out(tmp_path / "out")["tune dense-hops"] == "the time was up before it was done"
    assert not [*(tmp_path / "out" / "members").glob("*.jsonl")]


def test_a_system_that_is_too_slow_is_compared_no_further(
    place: Path, options: FitOptions, tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = comparing.rank_splits

    def slow(work: Any, system: str, *more: Any) -> Any:
        if system == "dense":
            time.loop(1000, 60.0)
        return rank(work, system, *more)

    monkeypatch.setattr(comparing, "rank_splits", slow)
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert time.now <= 1.1 * HOUR
    assert "dense" not in fitted.metrics
    assert left_out(tmp_path / "out")["compare dense"] == "the time was up before it was done"


def test_memory_that_a_step_has_freed_is_returned(
    place: Path, options: FitOptions, tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[bool] = []
    monkeypatch.setattr(steps, "give_back_freed", lambda: times.append(True))
    fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert len(times) > 3


def test_a_training_keeps_to_its_time_itself(tmp_path: Path) -> None:
    """Its weights would be lost if it were ended in the middle."""
    progress = FitProgress(tmp_path, shown=False)
    with progress.stage("biencoder", lambda: True):
        progress.at(0.0, "train step 0")
        with Progress(1, "retrieve", "inputs", shown=None) as bar:
            bar.update()
    with (
        pytest.raises(TimeIsUp),
        progress.stage("dense", lambda: True),
        Progress(2, "embed", "texts", shown=None) as bar,
    ):
        bar.update()


def test_the_end_of_a_run_has_time_of_its_own() -> None:
    now = [0.0]
    clock = FitClock(100.0, 0.0, lambda: now[0])
    for at, is_up in ((80.0, False), (86.0, False), (88.0, True), (200.0, True)):
        now[0] = at
        assert clock.is_up == is_up
    assert not FitClock(None).is_up


def test_what_does_all_or_nothing_is_not_begun_without_half_of_its_time(options: FitOptions) -> None:
    from grls.fitting.steps import FitSteps

    steps = FitSteps(None, None, FitClock(HOUR))  # type: ignore[arg-type]
    dense, train = (Stage(name, "", {}, 100.0) for name in ("dense", "biencoder"))  # type: ignore[arg-type]
    assert [steps._too_late(dense, seconds) for seconds in (49.0, 51.0, None)] == [True, False, False]
    assert [steps._too_late(train, seconds) for seconds in (19.0, 21.0, None)] == [True, False, False]


def test_a_model_that_is_too_slow_to_measure_is_done_without(
    place: Path, options: FitOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = data_facts(place / "data", "train", "dev", "test")
    models = BaseModels(find_encoder(options.biencoder), None, {})
    machine = Machine(1, False, 16.0, "", 0.0, 60.0)
    monkeypatch.setattr(timing, "_MEASURING", 0.0)
    assert measured_speeds(place / "data", facts, machine, models, options).encoder is None


class SlowSystem:
    """Takes long for a query."""

    def __init__(self, seconds: Callable[[int], float], now: list[float]):
        self.seconds, self.now = seconds, now
        self.asked: list[int] = []

    def retrieve(self, queries: Sequence[Any], k: int) -> list[Any]:
        self.asked.append(len(queries))
        self.now[0] += self.seconds(len(queries))
        return []


@pytest.mark.parametrize(("each", "asked"), [(1.0, [1, 4]), (100.0, [1])])
def test_a_slow_system_is_timed_on_one_query(
    each: float, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    system = SlowSystem(lambda count: each * count, now)
    monkeypatch.setattr(comparing, "perf_counter", lambda: now[0])
    monkeypatch.setattr(comparing, "open_system", lambda *_: system)
    work = FitWork(Path(), FitOptions(), "dev", FitProgress(Path(), False))
    pace = comparing.timed(work, "hybrid", [""] * 9, "float32", 1000.0)  # type: ignore[list-item]
    assert system.asked == asked
    assert pace.query == each


def test_a_stage_with_the_name_of_its_system_is_called_so_once(tmp_path: Path) -> None:
    assert [shown_name(key) for key in ("dense dense", "hybrid hybrid", "tune dense-hops", "report")] == [
        "dense",
        "hybrid",
        "tune dense-hops",
        "report",
    ]
    progress = FitProgress(tmp_path, shown=False)
    progress.expect({"dense dense": 60.0})
    with progress.stage("dense dense"):
        assert progress.line().startswith("[1/1] dense, about ")


@pytest.mark.parametrize("there", [(), ("timing.json",)])
def test_a_run_whose_budget_is_refused_leaves_nothing(
    tmp_path: Path, place: Path, time: FakeTime, there: tuple[str, ...]
) -> None:
    """It left a half-made folder with a journal and a copy of the data."""
    output = tmp_path / "out"
    for name in there:
        output.mkdir()
        (output / name).write_text("{}")
    short = fit_options(**WORDS_ALONE, budget="5s")
    with pytest.raises(ConfigError, match="is too short for anything"):
        fit_dataset(str(place / "data"), output, short, shown=False)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [*there]
    assert output.exists() == bool(there)


def test_a_run_that_goes_on_says_so(
    tmp_path: Path, place: Path, time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed_at(["tune bm25-hops"], patch)
        with pytest.raises(Killed):
            fit_dataset(str(place / "data"), tmp_path / "out", fit_options(**WORDS_ALONE))
    assert "goes on" not in capsys.readouterr().out
    fit_dataset(str(place / "data"), tmp_path / "out", fit_options(**WORDS_ALONE))
    assert f"{tmp_path / 'out'}: this run goes on after bm25.\n" in capsys.readouterr().out
