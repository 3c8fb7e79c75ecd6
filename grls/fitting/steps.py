"""The steps of a run before the comparison, each done once: trainings, folders, tuning.

A step that cannot be done (its model diverged, a part that it needs was left out, there is no time) is left
out, and that is said; the systems without it are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

from grls.errors import GrlsError, out_of_memory
from grls.fitting import folders, trainings, tuning
from grls.fitting.clock import FitClock, TimeIsUp
from grls.fitting.journal import FitJournal
from grls.fitting.plan import Stage
from grls.fitting.progress import shown_name
from grls.fitting.work import FitWork
from grls.io.progress import duration
from grls.train.core.malloc_trim import give_back_freed

LEFT_OUT = "left_out"
"""The field of a result that says why a step was not done."""

_WORTHWHILE = 0.2
"""The share of its estimate below which a stage that can do less is not begun."""

_WHOLE = 0.5
"""The same of a stage that does all or nothing: estimates are rough, and may be twice too high."""


_TRAINS = (trainings.BIENCODER, trainings.GENERATOR)
"""The stages that train."""


class FitSteps:
    """Does the steps of a run.

    Args:
        work: The run.
        journal: What is done.
        clock: The time.

    Attributes:
        results: The results of stages, by their keys.
    """

    def __init__(self, work: FitWork, journal: FitJournal, clock: FitClock):
        self.work = work
        self.journal = journal
        self.clock = clock
        self.results: dict[str, dict[str, Any]] = {}

    def step(
        self,
        name: str,
        options: Any,
        make: Callable[[], Any],
        there: Callable[[Any], bool] = lambda _: True,
        tell: Callable[[Any, float], str] | None = None,
        limited: bool = False,
    ) -> Any:
        """The result of a step: from the journal, or else it is done now.

        Args:
            name: Its name.
            options: What it depends on beside the steps before it, as JSON values.
            make: Does it; returns JSON values.
            there: Whether the files of a result are there.
            tell: A result and its seconds -> a line for people; None: no line.
            limited: Leave it out when the time of the run is up.
        """
        known = self.journal.done(name, options, there)
        if known is None:
            begun = perf_counter()
            known = self._made(name, make, limited)
            seconds = perf_counter() - begun
            self.journal.add(name, options, seconds, known)
            if tell is not None:
                self.work.progress.say(f"{shown_name(name)}: {tell(known, seconds)}")
        self.results[name] = known
        return known

    def _made(self, name: str, make: Callable[[], Any], limited: bool) -> Any:
        """The result of a step; where the time is up before, why there is none."""
        is_up = (lambda: self.clock.is_up) if limited else None
        try:
            with self.work.progress.stage(name, is_up):
                return make()
        except TimeIsUp:
            return {LEFT_OUT: "the time was up before it was done"}
        finally:
            give_back_freed()

    def words(self) -> dict[str, Any]:
        """The folder of BM25."""
        return folders.make_words(self.work)

    def do(self, stage: Stage, seconds: float | None) -> None:
        """Do a stage of the plan.

        Args:
            stage: The stage.
            seconds: The longest time of it; None: no limit.
        """
        options = {"options": dict(stage.options), "recipes": list(stage.recipes)}
        make, tell = self._maker(stage, seconds)
        self.step(stage.key, options, make, self._there, tell, limited=True)

    def _there(self, result: Any) -> bool:
        """Whether model and folder of a result are there."""
        model, folder = result.get("model"), result.get("folder")
        return (model is None or (self.work.output / model).is_dir()) and (
            folder is None or (self.work.member(folder) / "grls.json").is_file()
        )

    def _maker(
        self, stage: Stage, seconds: float | None
    ) -> tuple[Callable[[], Any], Callable[[Any, float], str]]:
        """The function that does a stage, and the one that tells what came of it."""
        work, encoder = self.work, self._model("biencoder dense")
        writer = self._model("generator hybrid")
        lacking = self._lacking(stage)
        if lacking is None and self._too_late(stage, seconds, self._begun(stage)):
            lacking = "no time is left for it"
        if lacking is not None:
            return lambda: {LEFT_OUT: lacking}, _told
        share = 1.0 if seconds is None else min(1.0, seconds / max(stage.seconds, 1e-9))
        seconds = None if seconds is None else max(1.0, seconds)
        makers: dict[str, Callable[[], Any]] = {
            "biencoder": lambda: _tried(lambda: trainings.train_encoder(work, stage, seconds)),
            "generator": lambda: _tried(lambda: trainings.train_writer(work, stage, seconds)),
            "dense": lambda: folders.make_dense(work, stage, encoder),
            "index": lambda: folders.make_generator(work, stage, str(writer)),
            "hybrid": lambda: folders.make_hybrid_system(work, stage),
            "tune": lambda: self._tuned(stage, share),
        }
        return makers[stage.name], _told

    def _tuned(self, stage: Stage, share: float) -> dict[str, Any]:
        if stage.system in folders.RANKED:
            folders.make_hops_system(self.work, stage)
        return tuning.tune_system(self.work, stage, self._queries(stage, share))

    def _queries(self, stage: Stage, share: float) -> int | None:
        """The queries of a tuning: those that it was begun with, whatever time is left now."""
        name, options = f"queries of {stage.key}", json.loads(json.dumps(dict(stage.options)))
        kept = self.journal.kept(name)
        if kept is not None and kept["options"] == options and self._begun(stage):
            limit: int | None = kept["limit"]
            return limit
        limit = tuning.tuned_queries(self.work, stage, share)
        if self.clock.budget is not None:
            self.journal.keep(name, {"options": options, "limit": limit})
        return limit

    def _begun(self, stage: Stage) -> bool:
        """Whether a training or a tuning was cut off, whose work would be lost."""
        if stage.name == "tune":
            return tuning.begun_tuning(self.work, stage).is_file()
        return stage.name in _TRAINS and trainings.begun_training(self.work, stage.name).is_dir()

    def _model(self, key: str) -> str | None:
        model: str | None = self.results.get(key, {}).get("model")
        return model

    def _lacking(self, stage: Stage) -> str | None:
        """What a stage needs and was left out; None: nothing."""
        work = self.work
        if stage.name == "dense" and "model" not in stage.options and not self._model("biencoder dense"):
            return "there is no bi-encoder"
        if stage.name == "index" and not self._model("generator hybrid"):
            return "there is no generator"
        if stage.name == "generator" and stage.options.get("data.teacher") == folders.DENSE:
            return None if work.member(folders.DENSE).is_dir() else "there is no bi-encoder to teach it"
        if stage.name == "hybrid" and not work.member(folders.GENERATIVE).is_dir():
            return "there is no generator"
        of = folders.RANKED.get(stage.system, stage.system)
        if stage.name == "tune" and not work.member(of).is_dir():
            return f"there is no {of}"
        return None

    def _too_late(self, stage: Stage, seconds: float | None, begun: bool = False) -> bool:
        """Whether a stage has so little time that it is not worth beginning.

        Trainings and tuning do less in less time; other stages do all or nothing. One that was begun goes on
        while there is time: it may need little more.
        """
        if seconds is None or (begun and not self.clock.is_up):
            return False
        elastic = stage.name in (*_TRAINS, "tune")
        return self.clock.is_up or seconds < max(
            1.0 if elastic else 0.0, (_WORTHWHILE if elastic else _WHOLE) * stage.seconds
        )


def _tried(train: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A training, or why it failed."""
    try:
        return train()
    except GrlsError as error:
        return {LEFT_OUT: f"it failed: {error}"}
    except Exception as error:
        if out_of_memory(error):
            return {LEFT_OUT: "it failed: there is too little memory for it"}
        raise


def _told(result: dict[str, Any], seconds: float) -> str:
    """What came of a stage, for people."""
    if LEFT_OUT in result:
        return f"left out: {result[LEFT_OUT]}"
    if "steps" in result:
        return trainings.training_line(result, seconds)
    if "choices" in result:
        return f"{tuning.tuning_line(result)}, {duration(seconds)}"
    what = result.get("line") or ", ".join(result.get("priors", ())) or "done"
    return f"{what}, {duration(seconds)}"
