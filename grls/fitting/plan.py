"""The plan of ``grls fit``: its stages in order, each with an estimate of its time, and what is skipped.

Systems are what is compared at the end: ``bm25``; ``dense``, the bi-encoder in a single step; ``bm25-hops``
and ``dense-hops``, both ranked by hops (folders of kind hops over the first two); ``generator``, in a single
step and without priors; ``hybrid``, the generator with its priors, ranked by hops where that is better;
``fusion`` of them. The module only describes what is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grls.fitting.effort import Effort
from grls.fitting.facts import DataFacts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModels
from grls.fitting.options import FitOptions
from grls.fitting.progress import shown_name
from grls.fitting.speeds import Speeds
from grls.io.counts import counted
from grls.io.progress import duration

System = Literal["bm25", "bm25-hops", "dense", "dense-hops", "generator", "hybrid", "fusion"]
StageName = Literal[
    "biencoder", "dense", "generator", "index", "hybrid", "tune", "compare", "fusion", "report"
]


@dataclass(frozen=True)
class Stage:
    """One step of a plan.

    Options are those of a command, by dotted name, with JSON values. The name of a system as a value stands
    for the folder of that system (``bm25`` also for itself). Data, output and earlier stages are left out.

    ==========  ============================================================================================
    name        options
    ==========  ============================================================================================
    biencoder   of ``grls train biencoder``
    dense       of ``grls index``: embed the corpus; ``model``: the model, where it is not trained
    generator   of ``grls train chains``
    index       of ``grls index``: the constraint index of the generator
    hybrid      of ``grls index hybrid``; ``priors`` is a list of systems
    tune        of ``grls tune`` for the folder of ``system``; it writes hops into the folder
    compare     ``systems``, ``k``, ``precision``, ``dev_limit`` and ``test_limit`` (null: all): rank the dev
                and test queries with every system
    fusion      of ``grls index fusion``; ``members`` is a list of systems, their weights from the dev runs
    report      ``systems`` and ``baselines``: the page that compares, and the model card
    ==========  ============================================================================================

    Args:
        name: What is done.
        what: The same in one line, for people.
        options: The overrides on the recipes.
        seconds: The estimate of its time.
        recipes: The recipes that the options override, in order (``chains``, ``default/chains``).
        system: The system that the stage is a part of; empty: all of them.
    """

    name: StageName
    what: str
    options: Mapping[str, Any]
    seconds: float
    recipes: tuple[str, ...] = ()
    system: System | Literal[""] = ""

    @property
    def key(self) -> str:
        """Name and system; no other stage of a plan has it."""
        return f"{self.name} {self.system}".strip()


@dataclass(frozen=True)
class Skipped:
    """What a plan leaves out.

    Args:
        name: What is left out: a stage, or a part of one.
        why: The reason, and what would change it.
    """

    name: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What ``grls fit`` does.

    Args:
        facts: What the data are like.
        machine: What the machine can do.
        models: The models to begin with.
        options: What the user has chosen.
        speeds: How long the parts take on the machine.
        effort: How much of everything is done.
        stages: The stages in order.
        skipped: What is left out.
        budget: The time for everything, in seconds; None: no limit.
        measured: The time that planning itself took, in seconds.
        notes: What was changed of the data.
    """

    facts: DataFacts
    machine: Machine
    models: BaseModels
    options: FitOptions
    speeds: Speeds
    effort: Effort
    stages: tuple[Stage, ...]
    skipped: tuple[Skipped, ...] = ()
    budget: float | None = None
    measured: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The estimate of the time of all stages and of planning."""
        return self.measured + sum(stage.seconds for stage in self.stages)

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that are compared, without their fusion."""
        (compare,) = (stage for stage in self.stages if stage.name == "compare")
        systems: Sequence[str] = compare.options["systems"]
        return tuple(systems)

    def text(self) -> str:
        """The plan for people: data, machine, models, stages with their times, and what is skipped."""
        data = [*self.facts.lines(), *self.notes]
        heads = ["Data", *[""] * (len(data) - 1), "Machine", "Models"]
        tails = [*data, self.machine.line(), self.models.line()]
        lines = [f"{head:<9}{tail}" for head, tail in zip(heads, tails, strict=True)]
        names = [shown_name(stage.key) for stage in self.stages]
        width = max(map(len, names))
        lines += ["", "Stages"]
        lines += [
            f"  {name:<{width}}  {_about(stage.seconds):>8}  {stage.what}"
            for name, stage in zip(names, self.stages, strict=True)
        ]
        limit = "no limit" if self.budget is None else f"of {duration(self.budget)}"
        lines.append(f"  {'all':<{width}}  {_about(self.seconds):>8}  {limit}")
        lines.append(f"  {self._estimated()}")
        if self.skipped:
            lines += ["", "Skipped", *(f"  {one.name}: {one.why}" for one in self.skipped)]
        return "\n".join(lines)

    def _estimated(self) -> str:
        """How sure the times are."""
        machine = self.machine
        times = "times are estimates, from a few steps of each part"
        if not machine.busy:
            return times
        cores = counted(machine.cores, "core")
        return f"{times}; other work takes the machine (load {machine.load:.0f} on {cores}), without it less"


def _about(seconds: float) -> str:
    return "-" if seconds < 1 else duration(seconds)
