"""A killed run goes on with the plan that it had, whatever has become of time and machine meanwhile."""

import json
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import fit_options, write_fit_data, write_fit_models
from test_planner import planned
from test_run_fit import Killed, killed_at, known, without_times

from grls.fitting import planner, run
from grls.fitting.clock import FitClock
from grls.fitting.journal import FitJournal
from grls.fitting.kept_plan import plan_as_revised, revision_record
from grls.fitting.options import FitOptions
from grls.fitting.planner import revised_plan
from grls.fitting.run import fit_dataset


@pytest.fixture(autouse=True)
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "known_speeds", known)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("resumed")
    write_fit_data(root / "data")
    return root


@pytest.fixture(scope="module")
def options(place: Path) -> FitOptions:
    return fit_options(**write_fit_models(place, place / "data"), budget="20m")


def late(monkeypatch: pytest.MonkeyPatch, step: str, by: float) -> None:
    """Let time pass at once after a step; it stays passed when a run is called again."""
    now = [0.0]
    monkeypatch.setattr(run, "FitClock", lambda budget, spent: FitClock(budget, now[0], lambda: now[0]))
    add = FitJournal.add

    def recorded(self: FitJournal, name: str, *more: Any) -> None:
        add(self, name, *more)
        now[0] += by if name == step else 0.0

    monkeypatch.setattr(FitJournal, "add", recorded)


def killed_run(data: Path, output: Path, options: FitOptions, steps: list[str]) -> None:
    """A run that is killed before each of these steps is recorded, and goes on to its end."""
    with pytest.MonkeyPatch.context() as patch:
        killed_at(steps, patch)
        for _ in range(len(steps)):
            with pytest.raises(Killed):
                fit_dataset(str(data), output, options, shown=False)
        fit_dataset(str(data), output, options, shown=False)


def test_a_killed_run_with_a_budget_goes_on_to_the_same_result(
    place: Path, options: FitOptions, tmp_path: Path
) -> None:
    """It went on with its stages, but all that rests on the plan was that of the first one."""
    for name, steps in (("whole", []), ("cut", ["tune dense-hops", "share"])):
        with pytest.MonkeyPatch.context() as patch:
            late(patch, "dense dense", 1150.0)
            killed_run(place / "data", tmp_path / name, options, steps)
    plan = json.loads((tmp_path / "cut" / "fit.json").read_text())["plan"]
    assert "generator" in [one["name"] for one in plan["skipped"]]
    assert "generator" not in [one["name"] for one in plan["stages"]]
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def as_read(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_a_revision_of_a_revised_plan_is_the_same_in_a_run_that_goes_on() -> None:
    """Dev queries that tuned, and steps that were trained, were those of the first plan."""
    first = planned("60m")
    took = {stage.key: 2.2 * stage.seconds for stage in first.stages[:3]}
    revised = revised_plan(first, took, hops_win=True)
    assert revised.effort != first.effort
    again = plan_as_revised(first, as_read(revision_record(revised)), took)
    assert as_read(revision_record(again)) == as_read(revision_record(revised))
    assert (again.effort, again.skipped, again.facts) == (revised.effort, revised.skipped, revised.facts)
    later = {**took, "tune dense-hops": 40.0}
    assert revised_plan(again, later).effort == revised_plan(revised, later).effort
    assert revised_plan(again, later).effort != revised_plan(first, later).effort


def test_a_journal_of_before_goes_on_with_the_stages_that_were_left() -> None:
    first = planned("60m")
    took = {stage.key: stage.seconds for stage in first.stages[:4]}
    left = as_read(revision_record(revised_plan(first, took, 3000.0))["stages"])[4:]
    again = plan_as_revised(first, left, took)
    assert [stage.key for stage in again.stages] == [
        *took,
        *(f"{o['name']} {o['system']}".strip() for o in left),
    ]
    assert again.facts == first.facts or again.facts.hops_win
