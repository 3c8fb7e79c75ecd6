"""What a run did, for its page and its card: stages with their times, and what was skipped and why."""

from __future__ import annotations

from typing import Any, NamedTuple

from grls.io.progress import duration


class Account(NamedTuple):
    """What a run did.

    Attributes:
        done: Each stage that was done, and its time; empty where that is unknown.
        skipped: What was not done, and why.
    """

    done: list[tuple[str, str]]
    skipped: list[tuple[str, str]]


def account_of(content: dict[str, Any]) -> Account:
    """What a run did, from what stands in its ``fit.json``: the plan, and the seconds of steps."""
    plan, seconds = content["plan"], content["step_seconds"]
    left_out = plan["left_out"]
    done, skipped = [], [(one["name"], one["why"]) for one in plan["skipped"]]
    for stage in plan["stages"]:
        key = f"{stage['name']} {stage['system']}".strip()
        if key in left_out:
            skipped.append((stage["what"], left_out[key]))
        else:
            what = content["compared"] if stage["name"] == "compare" else stage["what"]
            done.append((what, _time(stage["name"], key, seconds)))
    for key, why in left_out.items():
        step, _, system = key.partition(" ")
        skipped += [(f"rank queries with {system}", why)] if step == "compare" else []
    skipped += [(name, f"one hop is best, which is {of}") for name, of in content["same"].items()]
    return Account(done, skipped)


def _time(name: str, key: str, seconds: dict[str, float]) -> str:
    """The time of a stage; the comparison has a step for each system."""
    steps = {step: took for step, took in seconds.items() if step == key}
    if name == "compare":
        steps = {step: took for step, took in seconds.items() if step.startswith(("compare ", "share"))}
    return duration(sum(steps.values())) if steps else ""
