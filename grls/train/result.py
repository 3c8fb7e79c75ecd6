"""The result of a training. The module is light to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingResult:
    """A training that has ended, with a model that is ready for use.

    Attributes:
        model: Folder of the model.
        logs: Its log: a folder with ``metrics.csv``.
        monitor: The measure on dev by which the model was chosen, such as ``dev_recall``.
        best: Its best value; None: dev was not measured, and the model is that of the last step.
        steps: Optimizer steps of the run, those before it was resumed included.
        examples: Training examples.
        seconds: Seconds that this call took.
        time_is_up: Whether ``max_seconds`` ended the training before its last step.
    """

    model: Path
    logs: Path
    monitor: str
    best: float | None
    steps: int
    examples: int
    seconds: float
    time_is_up: bool
