"""Hops of the generator on short passages: they are taken where the bi-encoder was measured to need them."""

import json
from pathlib import Path

import pytest
from fit_helpers import fit_options, write_fit_data, write_fit_models
from test_run_fit import Killed, killed_at, known

from grls.fitting import planner, run
from grls.fitting.run import fit_dataset
from grls.fitting.tuning import gain_of_hops


def tuned(before: float, after: float, what: str) -> dict[str, object]:
    return {"choices": [{"measure": "recall@5", "before": before, "after": after, "what": what}]}


def test_hops_win_where_they_were_chosen_and_bring_much() -> None:
    assert gain_of_hops(tuned(0.79, 1.0, "2 hops, temperature 0.5")) == "recall@5 79.0 -> 100.0"
    assert gain_of_hops(tuned(0.79, 0.82, "2 hops")) is None
    for before in range(0, 96):  # five points are enough, whatever the floats say
        assert gain_of_hops(tuned(before / 100, (before + 5) / 100, "2 hops")), before
    assert gain_of_hops(tuned(0.8, 0.8499, "2 hops")) is None
    assert gain_of_hops(tuned(0.79, 0.79, "a single step")) is None
    assert gain_of_hops({"left_out": "no time is left for it"}) is None


def test_a_generator_learns_and_searches_by_hops_where_they_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was killed goes on to the same result."""
    monkeypatch.setattr(planner, "known_speeds", known)
    monkeypatch.setattr(run, "gain_of_hops", lambda result: "recall@2 10.0 -> 90.0")
    data = str(write_fit_data(tmp_path / "data"))
    options = fit_options(**write_fit_models(tmp_path, tmp_path / "data"))
    fit_dataset(data, tmp_path / "out", options)
    said = capsys.readouterr().out
    assert "generator: by hops, too, as the bi-encoder finds more by them (recall@2 10.0 -> 90.0)" in said
    plan = json.loads((tmp_path / "out" / "fit.json").read_text())["plan"]
    stages = {f"{one['name']} {one['system']}": one["options"] for one in plan["stages"]}
    assert stages["generator hybrid"]["data.multistep"] is True
    assert stages["tune hybrid"]["hops.steps"] == "ranked"
    assert "hops of the generator" not in [one["name"] for one in plan["skipped"]]
    killed_at(["generator hybrid"], monkeypatch)
    with pytest.raises(Killed):
        fit_dataset(data, tmp_path / "again", options, shown=False)
    fit_dataset(data, tmp_path / "again", options, shown=False)
    assert (
        json.loads((tmp_path / "again" / "fit.json").read_text())["metrics"]
        == json.loads((tmp_path / "out" / "fit.json").read_text())["metrics"]
    )
