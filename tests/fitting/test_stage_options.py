"""The options of every stage are options of the commands that they name."""

import json
from dataclasses import fields
from typing import Any

import pytest
from test_planner import facts, planned

from grls.cli import main
from grls.fitting.plan import Plan
from grls.fitting.recipe import recipe
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.train.biencoder.options import BiEncoderOptions
from grls.tune.options import TuneOptions

PLANS = {
    "hops": planned(None),
    "one": planned(None, facts(gold=1.0)),
    "short": planned(None, facts(words=10.0)),
    "hurried": planned("20m"),
}


def section(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {k.partition(".")[2]: v for k, v in options.items() if k.startswith(f"{name}.")}


def tuned(options: Any, name: str) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in section(options, name).items()}


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_options_are_those_of_their_classes(plan: Plan) -> None:
    for stage in plan.stages:
        options = dict(stage.options)
        if stage.name == "biencoder":
            BiEncoderOptions(**{**recipe(stage.recipes)["fit"], **section(options, "fit")})
        if stage.name == "tune":
            TuneOptions(**tuned(options, "grid"))
            HopOptions(**section(options, "hops"))
            SearchOptions(**section(options, "search"))
        if stage.name == "fusion":
            Fusion(**section(options, "fusion"))
        if stage.name == "hybrid":
            known = {field.name for field in fields(SearchOptions)}
            assert set(section(options, "search")) <= known


@pytest.mark.parametrize("plan", [PLANS["hops"], PLANS["short"]], ids=["hops", "short"])
def test_the_command_takes_the_options_of_a_generator(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    (stage,) = (stage for stage in plan.stages if stage.name == "generator")
    options = {"data.data": "data", "output": "runs/fit", **stage.options}
    words = [f"--config={name}" for name in stage.recipes]
    words += [f"--{name}={written(value)}" for name, value in options.items()]
    with pytest.raises(SystemExit) as ended:
        main(["train", "chains", *words, "--print_config"])
    assert ended.value.code in (None, 0)
    printed = capsys.readouterr().out
    assert f"limit_train_batches: {stage.options['trainer.limit_train_batches']}" in printed


def written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
