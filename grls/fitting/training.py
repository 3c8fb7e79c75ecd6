"""How a training of a stage keeps to its time.

All steps are done where they fit, else as many as do. The first steps show how long one takes, under the load
of the time, and the training begins anew with fewer where not all fit. One that was cut off goes on from its
checkpoint, with the steps that it was begun with.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grls.errors import ConfigError, MismatchError
from grls.fitting.journal import FitProgress
from grls.fitting.search import Allowance, TimeIsUp
from grls.io.progress import duration, mean_load
from grls.train.core.clock import Meter, TrainingResult, TrainingStep

Train = Callable[[int, bool, float, Meter], TrainingResult]
"""Trains so many steps; whether from its checkpoint; in so many seconds; what it calls after each step."""

_FILLED = 0.85  # the share of the time that is left which steps may take, as they were measured


class _Fewer(Exception):  # noqa: N818
    """Not all steps fit; so many do."""


@dataclass
class TimedTraining:
    """A training in a folder: ``most`` steps at most, and none below ``least``."""

    folder: Path
    most: int
    least: int
    progress: FitProgress
    pace: tuple[float, float] | None = None
    """Seconds of a step, and the load under which it was measured."""

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def _steps(self) -> Path:
        return self.folder / "steps.txt"

    @property
    def done(self) -> str:
        """How many steps were done, or are to be done, in words; empty: it was not begun."""
        return self._steps.read_text(encoding="utf-8").strip() if self._steps.is_file() else ""

    def run(self, steps: int, train: Train, allowance: Allowance, follows: float = 0.0) -> None:
        """Train all ``steps`` or as many as fit; ``follows``: seconds that its stage takes beside it."""
        whole, checkpoints = min(steps, self.most), self.folder / "checkpoints"
        if self.model.is_dir():  # a call that was killed later has trained it
            shutil.rmtree(checkpoints, ignore_errors=True)
            return
        least = min(whole, self.least)
        resume = any(checkpoints.glob("*")) and bool(self.done)
        steps = whole
        if resume:
            steps = int(self.done.split()[0].replace(",", ""))
        elif self.pace is not None and abs(mean_load() - self.pace[1]) < 1.0:  # of an earlier turn
            steps = int(min(whole, _FILLED * allowance.left / self.pace[0]))
        measures = not resume
        while True:
            if steps < least:
                raise self._refusal(steps, whole, least, follows)
            if not resume:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir(parents=True)
                self._steps.write_text(f"{steps:,} steps\n", encoding="utf-8")
            try:
                meter = self._meter(steps, allowance, measures)
                result = train(steps, resume, max(1.0, allowance.left), meter)
                break
            except _Fewer as fewer:
                steps, measures = min(steps, *fewer.args), False
            except (ConfigError, MismatchError):
                if not resume:
                    raise
                resume = False  # there is nothing to go on with
        if result.steps < least:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.pace = self.pace or (allowance.spent / max(1, result.steps), mean_load())
            raise self._refusal(result.steps, whole, least, follows)
        done = f"{result.steps:,}{f' of {whole:,}' if result.steps < whole else ''} steps"
        self._steps.write_text(f"{done}\n", encoding="utf-8")
        shutil.rmtree(checkpoints, ignore_errors=True)
        best = "" if result.best is None else f", {result.monitor} {100 * result.best:.1f} in training"
        self.progress.note(f"{done}{best}, {duration(allowance.spent)}")

    def _meter(self, steps: int, allowance: Allowance, measures: bool) -> Meter:
        marks: list[float] = []

        def meter(step: TrainingStep) -> float:
            self.progress.at(f"train step {step.step:,} of {steps:,}")
            marks.append(allowance.spent)
            room = max(1.0, allowance.left)
            if len(marks) == 5:  # the first step warms up
                each = (marks[4] - marks[1]) / 3
                self.pace = each, mean_load()
                if measures and (steps - step.step) * each > _FILLED * room:
                    raise _Fewer(int((_FILLED * room - marks[0]) / each))
            return room

        return meter

    def _refusal(self, fits: int, whole: int, least: int, follows: float) -> TimeIsUp:
        each = 0.0 if self.pace is None else self.pace[0]
        return TimeIsUp(f"{max(0, fits)} of {whole} steps would fit", least * each + follows)
