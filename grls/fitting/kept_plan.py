"""The plan of a run as its journal keeps it, so that a run that goes on follows the plan that it had.

Memory and disk that are free, models that can be had and speeds are those of the first call: the run itself
fills the disk, and other work the memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grls.fitting.effort import Effort, Level
from grls.fitting.facts import data_facts
from grls.fitting.machine import Machine, this_machine
from grls.fitting.models import BaseModel, BaseModels, base_models
from grls.fitting.options import AUTO, NONE, FitOptions
from grls.fitting.plan import Plan, Skipped, Stage
from grls.fitting.speeds import Speeds


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan and what it rests on, as JSON values, without the data and the options."""
    return {
        "machine": asdict(plan.machine),
        "models": asdict(plan.models),
        "speeds": plan.speeds.record(),
        "measured": plan.measured,
        **revision_record(plan),
    }


def plan_again(data: str | Path, output: str | Path, options: FitOptions, record: Any) -> Plan | None:
    """The plan of a run that goes on; None: an older version has recorded it, which knew other fields.

    Args:
        data: The data set of the run.
        output: Where the run writes.
        options: What the user has chosen.
        record: Of :func:`plan_record`.

    Raises:
        ConfigError: The device cannot be used, or a model that the user named is gone.
    """
    now = this_machine(output, options.device)
    encoder, writer = (NONE if name == AUTO else name for name in (options.biencoder, options.generator))
    base_models(encoder, writer, now, None)
    facts = data_facts(data, options.train_split, options.dev_split, options.test_split)
    try:
        machine = replace(Machine(**record["machine"]), load=now.load)
        models, speeds = _models(record["models"]), Speeds.of_record(record["speeds"])
        effort = _effort(record["effort"])
        plan = Plan(
            facts, machine, models, options, speeds, effort, (), (), options.seconds, record["measured"]
        )
        return plan_as_revised(plan, record, ())
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _models(record: dict[str, Any]) -> BaseModels:
    named = (record["biencoder"], record["generator"])
    encoder, writer = (None if one is None else BaseModel(**one) for one in named)
    return BaseModels(encoder, writer, dict(record["without"]))


def _effort(record: dict[str, Any]) -> Effort:
    return Effort(**{**record, "level": Level(*record["level"])})


def revision_record(plan: Plan) -> dict[str, Any]:
    """What a revision has chosen, as JSON values."""
    return {
        "effort": asdict(plan.effort),
        "stages": [asdict(stage) for stage in plan.stages],
        "skipped": [asdict(one) for one in plan.skipped],
        "hops_win": plan.facts.hops_win,
    }


def plan_as_revised(plan: Plan, record: Any, done: Collection[str]) -> Plan:
    """The plan that a revision has led to.

    Args:
        plan: The plan before it.
        record: Of :func:`revision_record`; a journal of before has a list of the stages that were left.
        done: The keys of the stages that were done.
    """
    if isinstance(record, list):
        left = _stages(record)
        kept = tuple(stage for stage in plan.stages if stage.key in done)
        by_hops = any(stage.name == "generator" and stage.options["data.multistep"] for stage in left)
        facts = replace(plan.facts, hops_win=plan.facts.hops_win or by_hops)
        return replace(plan, facts=facts, stages=(*kept, *left))
    return replace(
        plan,
        facts=replace(plan.facts, hops_win=record["hops_win"]),
        effort=_effort(record["effort"]),
        stages=_stages(record["stages"]),
        skipped=tuple(Skipped(**one) for one in record["skipped"]),
    )


def _stages(records: list[dict[str, Any]]) -> tuple[Stage, ...]:
    return tuple(Stage(**{**one, "recipes": tuple(one["recipes"])}) for one in records)
