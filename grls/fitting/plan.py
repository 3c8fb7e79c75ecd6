"""The plan of ``grls fit``: its stages in order, each with an estimate of its time, and what is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

StageName = Literal[
    "biencoder", "dense", "generator", "index", "hybrid", "tune", "fusion", "compare", "report"
]


@dataclass(frozen=True)
class Stage:
    """One step of a plan.

    Args:
        name: What is done. ``biencoder``: train it; ``dense``: embed the corpus with it; ``generator``: train
            it; ``index``: its constraint index; ``hybrid``: the generator with its priors; ``tune``: tune the
            ``system``; ``fusion``: fuse the systems, weights from dev; ``compare``: retrieve with all
            systems; ``report``: the page and the model card.
        what: What is done, in one line for people.
        options: The overrides on the recipes, by dotted option name as the command takes them
            (``fit.max_steps``). Folders that the run chooses (data, output, earlier stages) are left out.
        seconds: The estimate of its time.
        recipes: The recipes that the options override, in order (``chains``, ``default/chains``).
        system: The system that is made or tuned: ``bm25``, ``dense``, ``generator``, ``hybrid``, ``fusion``.
    """

    name: StageName
    what: str
    options: Mapping[str, Any]
    seconds: float
    recipes: tuple[str, ...] = ()
    system: str = ""

    @property
    def key(self) -> str:
        """Name and system: one stage of a plan."""
        return f"{self.name} {self.system}".strip()


@dataclass(frozen=True)
class Skipped:
    """What a plan leaves out.

    Args:
        name: What is left out: the name of a stage, or a part of one.
        why: The reason, with what would change it.
    """

    name: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What ``grls fit`` does.

    Args:
        stages: The stages in order.
        skipped: What is left out.
        budget: The time for everything, in seconds; None: no limit.
    """

    stages: tuple[Stage, ...]
    skipped: tuple[Skipped, ...] = field(default=())
    budget: float | None = None

    @property
    def seconds(self) -> float:
        """The estimate of the time of all stages."""
        return sum(stage.seconds for stage in self.stages)
