"""The plan of a run as its journal keeps it, so that a run that goes on follows the plan that it had."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from grls.fitting.effort import Effort, Level
from grls.fitting.plan import Plan, Skipped, Stage


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
    effort = record["effort"]
    return replace(
        plan,
        facts=replace(plan.facts, hops_win=record["hops_win"]),
        effort=Effort(**{**effort, "level": Level(*effort["level"])}),
        stages=_stages(record["stages"]),
        skipped=tuple(Skipped(**one) for one in record["skipped"]),
    )


def _stages(records: list[dict[str, Any]]) -> tuple[Stage, ...]:
    return tuple(Stage(**{**one, "recipes": tuple(one["recipes"])}) for one in records)
