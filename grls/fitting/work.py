"""What all stages of a run share: its folders, its options, and the options of a stage as values.

::

    OUTPUT/
        grls.json       a link to the retriever that is kept
        fit.json        the choice, the table of all systems, seconds, versions
        fit.jsonl       the journal
        README.md       the model card
        report.html     the page that compares
        data/           the data set with its splits
        members/        a folder for each system, and for each part of one
        runs/SPLIT/     what each system finds
        stages/         trainings, with their checkpoints, and logs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from grls.fitting.options import FitOptions
from grls.fitting.plan import Stage
from grls.fitting.progress import FitProgress
from grls.fitting.recipe import laid_over, recipe
from grls.retrieve.registry import BM25
from grls.retrieve.spec import made, relative

Options = TypeVar("Options")

_FOLDERS = ("data.teacher", "data.rescore.retrievers")
"""Options whose values name systems."""


@dataclass(frozen=True)
class FitWork:
    """A run at work.

    Attributes:
        output: Its folder.
        options: What the user has chosen.
        tune: The split that tunes.
        progress: What it shows.
    """

    output: Path
    options: FitOptions
    tune: str
    progress: FitProgress

    @property
    def data(self) -> str:
        """The folder of the data set."""
        return str(self.output / "data")

    def member(self, name: str) -> Path:
        """The folder of a system, or of a part of one."""
        return self.output / "members" / name

    def stage(self, name: str) -> Path:
        """The folder of a training."""
        return self.output / "stages" / name

    def run(self, split: str, system: str) -> Path:
        """The path of a run, without ending."""
        return self.output / "runs" / split / system

    def named(self, system: str, folder: Path) -> str:
        """A member as it stands in the folder of another system; BM25 is over the corpus of that one."""
        return system if system == BM25 else relative(self.member(system), folder)

    def placed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a training, with folders in place of the names of systems."""
        placed = dict(options)
        for name in (name for name in _FOLDERS if name in placed):
            value = placed[name]
            place = [self._place(one) for one in value] if isinstance(value, list) else self._place(value)
            placed[name] = place
        return placed

    def _place(self, system: Any) -> Any:
        return system if system in (BM25, None) else str(self.member(system))


def tree_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by dotted names as nested objects: ``{"fit.epochs": 3}`` -> ``{"fit": {"epochs": 3}}``."""
    tree: dict[str, Any] = {}
    for name, value in options.items():
        *parents, last = name.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return tree


def stage_tree(stage: Stage) -> dict[str, Any]:
    """The options of a stage over those of its recipes, as nested objects."""
    return laid_over(recipe(stage.recipes), tree_of(stage.options))


def section(cls: type[Options], tree: Mapping[str, Any], name: str) -> Options:
    """A dataclass of options from a section of a stage's options.

    Raises:
        DataError: An option is unknown or has a value that cannot be.
    """
    values = tree.get(name) or {}
    return made(cls, {key: _as_json(value) for key, value in values.items()}, Path("the plan"), name)


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
