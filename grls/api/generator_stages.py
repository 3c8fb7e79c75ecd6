"""The stages of a generator's training: their options, folders and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from grls.api.recipes import GeneratorRecipe, RecipeStage
from grls.api.searcher import Searcher, member_names
from grls.api.training_data import TrainingData, place_data
from grls.data.inputs.values import json_value
from grls.errors import ConfigError
from grls.models.load.base_models import BaseModel
from grls.models.load.sources import language_source
from grls.train.catalogue import STAGES
from grls.train.core.clock import Meter
from grls.train.result import TrainingResult

_TAUGHT = "chains"
"""The stage that learns from a teacher, and that trains causal models."""
_ARGUMENTS = {
    "output": "output",
    "resume": "resume",
    "data.data": "corpus, queries and gold",
    "data.teacher": "teacher",
}
"""Options that are arguments of the call."""
_FROZEN = "model.freeze_layers"


@dataclass(frozen=True)
class GeneratorRun:
    """What a training of a generator is asked for.

    Attributes:
        model: The model to begin with.
        layers: First layers that are kept; None: all.
        recipe: The stages.
        teacher: A retriever that teaches; None: none.
        options: Options over the recipe, by dotted name.
        resume: Resume from the last checkpoint.
        max_seconds: Longest time of all stages; None: no limit.
        meter: Called with every step.

    Raises:
        ConfigError: Something does not fit the recipe.
    """

    model: BaseModel
    layers: int | None
    recipe: GeneratorRecipe
    teacher: Searcher | str | Path | None
    options: Mapping[str, Any]
    resume: bool
    max_seconds: float | None
    meter: Meter | None

    def __post_init__(self) -> None:
        for name in self.options:
            stage, _, rest = name.partition(".")
            plain = rest if stage in STAGES else name
            if plain in _ARGUMENTS:
                raise ConfigError(
                    f"options may not hold {name!r}: give {_ARGUMENTS[plain]}, an argument of fit."
                )
            if stage in STAGES and stage not in self.names:
                raise ConfigError(
                    f"the option {name!r} is for the stage {stage}, and the recipe has "
                    f"{' and '.join(self.names)}."
                )
        others = [name for name in self.names if name != _TAUGHT]
        if others and self.teacher is not None:
            raise ConfigError(
                f"a teacher teaches chains, and the recipe trains {' and '.join(others)}: leave teacher out, "
                "or take the recipe spans or default."
            )
        if others and self.model.causal:
            raise ConfigError(
                f"the recipe trains encoder-decoders ({' and '.join(others)}), and {self.model.name} is a "
                "causal language model: take the recipe spans, chains or default."
            )

    @property
    def names(self) -> list[str]:
        """The names of the stages."""
        return [one.stage for one in self.recipe.stages]


def train_stages(run: GeneratorRun, data: TrainingData, output: Path) -> dict[str, TrainingResult]:
    """Train all stages; the model of the last one is in ``output/model``.

    Args:
        run: What is asked for.
        data: The data set.
        output: Folder of the data set and of the last stage; earlier stages have folders in it.

    Returns:
        The results by stage, without those that an earlier run has finished.
    """
    from grls.train.core.checkpoints import refuse_unfinished
    from grls.train.run import run_stage

    folders = [output / one.stage for one in run.recipe.stages[:-1]] + [output]
    if not run.resume:
        for folder in folders:
            refuse_unfinished(str(folder), warn=False)
    placed, begun, results = place_data(data, output, run.resume), monotonic(), {}
    name = run.model.name
    for n, (one, folder) in enumerate(zip(run.recipe.stages, folders, strict=True)):
        resume = run.resume and (n == 0 or _has_begun(folder))
        if not (run.resume and n < len(folders) - 1 and _is_done(folder)):
            options = {
                "output": str(folder),
                "resume": resume,
                "data.data": placed,
                **_options(run, one, name, n),
            }
            left = None if run.max_seconds is None else run.max_seconds - (monotonic() - begun)
            seconds = None if left is None else max(left / (len(folders) - n), 1e-3)
            results[one.stage] = run_stage(
                one.stage, options, one.layers, max_seconds=seconds, meter=run.meter
            )
        name = str(folder / "model")
    return results


def _options(run: GeneratorRun, one: RecipeStage, name: str, n: int) -> dict[str, Any]:
    """The options of a stage over its layers: of the model, the recipe, the teacher, and the user."""
    options: dict[str, Any] = {"model.generator": run.model.loader, "model.generator.name_or_path": name}
    if n == 0 and run.layers is not None:
        options["model.generator.layers"] = run.layers
    options |= one.options
    if one.stage == _TAUGHT and not run.model.causal:
        options |= {"model.freeze_embeddings": None}
    if "rescore" in one.layers:
        options[_FROZEN] = _frozen_layers(run)
    if run.teacher is not None:
        (options["data.teacher"],) = member_names([run.teacher])
    return options | dict(_of_stage(run, one.stage))


def _of_stage(run: GeneratorRun, stage: str) -> Iterator[tuple[str, Any]]:
    """The user's options for a stage, with searchers as their folders."""
    for name, value in run.options.items():
        first, _, rest = name.partition(".")
        if first == stage or first not in STAGES:
            yield (rest if first == stage else name), _with_folders(value)


def _with_folders(value: Any) -> Any:
    if isinstance(value, Searcher):
        return str(value.folder)
    if isinstance(value, Mapping):
        return {name: _with_folders(one) for name, one in value.items()}
    return [_with_folders(one) for one in value] if isinstance(value, list | tuple) else json_value(value)


def _frozen_layers(run: GeneratorRun) -> int:
    """First layers that rescoring freezes: twelve, as in ``rescore.yaml``, and in small models two fifths."""
    from grls.models.load.opening import open_config

    if not run.model.causal:
        return 0
    source, more = language_source(run.model.name)
    layers = run.layers or int(open_config(source, **more).num_hidden_layers)
    return min(12, 2 * layers // 5)


def _has_begun(folder: Path) -> bool:
    return (folder / "checkpoints" / "last.ckpt").is_file()


def _is_done(folder: Path) -> bool:
    """Whether a stage has written its model after its last checkpoint."""
    model, last = folder / "model" / "config.json", folder / "checkpoints" / "last.ckpt"
    return model.is_file() and last.is_file() and model.stat().st_mtime >= last.stat().st_mtime
