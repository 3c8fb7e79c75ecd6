"""A killed run goes on with the plan that it had, whatever has become of time and machine meanwhile."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import fit_options, write_fit_data, write_fit_models
from test_planner import planned
from test_run_fit import Killed, killed_at, known, without_times

from grls.fitting import kept_plan, planner, run
from grls.fitting.clock import FitClock
from grls.fitting.journal import FitJournal
from grls.fitting.kept_plan import plan_as_revised, revision_record
from grls.fitting.machine import Machine
from grls.fitting.options import FitOptions
from grls.fitting.plan import Plan
from grls.fitting.planner import revised_plan
from grls.fitting.run import fit_dataset, plan_dataset


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


def plan_of_run(data: Path, output: Path, options: FitOptions) -> Plan:
    """The plan of a run that is killed before its first stage."""
    plans: list[Plan] = []

    def cut_off(_: Any, steps: Any, plan: Plan) -> Any:
        plans.append(plan)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run._FitRun, "_train", cut_off)
        with pytest.raises(Killed):
            fit_dataset(str(data), output, options, shown=False)
    return plans[0]


def stages_of(plan: Plan) -> Any:
    return as_read([asdict(stage) for stage in plan.stages])


def on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (planner, kept_plan):
        monkeypatch.setattr(module, "this_machine", lambda *_: machine, raising=False)


BEFORE = Machine(2, False, 10.5, "", 0.0, 9.0)
LATER = Machine(1, False, 0.1, "", 0.0, 0.5, 3.0)
"""The checkpoints of the run have filled the disk, other work the memory, and a core is gone."""


def test_a_run_goes_on_as_on_the_machine_of_its_first_call(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory or disk had shrunk, stages were done again, or the generator was dropped."""
    on(BEFORE, monkeypatch)
    first = plan_of_run(place / "data", tmp_path / "out", options)
    assert "generator hybrid" in [stage.key for stage in first.stages]
    on(LATER, monkeypatch)
    monkeypatch.setattr(planner, "known_speeds", None)  # nothing is measured again
    again = plan_of_run(place / "data", tmp_path / "out", options)
    assert stages_of(again) == stages_of(first)
    assert (again.models, again.effort) == (first.models, first.effort)
    assert again.skipped == first.skipped
    assert (again.machine.memory, again.machine.disk, again.machine.load) == (10.5, 9.0, 3.0)
    assert stages_of(plan_dataset(str(place / "data"), tmp_path / "out", options)) == stages_of(first)


def test_a_generator_that_a_journal_of_before_has_begun_is_not_dropped(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    on(BEFORE, monkeypatch)
    plan_of_run(place / "data", output, options)
    journal = output / "fit.jsonl"
    journal.write_text("".join(line for line in journal.open() if '"first plan"' not in line))
    (output / "stages" / "generator").mkdir(parents=True)
    on(LATER, monkeypatch)
    plan = plan_of_run(place / "data", output, options)
    assert "generator hybrid" in [stage.key for stage in plan.stages]


def test_a_plan_that_cannot_be_read_is_made_anew(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(BEFORE, monkeypatch)
    first = plan_of_run(place / "data", tmp_path / "out", options)
    journal = tmp_path / "out" / "fit.jsonl"
    journal.write_text(journal.read_text().replace('"cores": 2', '"kernels": 2'))
    assert plan_of_run(place / "data", tmp_path / "out", options).stages == first.stages
    records = [json.loads(line) for line in journal.open()][1:]
    assert [r["result"]["machine"].get("cores") for r in records if r["step"] == "first plan"] == [None, 2]
