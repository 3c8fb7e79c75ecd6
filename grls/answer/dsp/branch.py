"""Several runs of a program at a temperature, and their majority: DSP's ``branch``, and its sampled queries.

DSPy's ``majority`` counts the answers. The module does not know the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.trace import note
from grls.errors import ConfigError
from grls.evaluation.metrics.answer_f1 import normalise_answer

SPREAD = 1000
"""Distance between the seeds of two branches; the draws within a branch take the seeds between."""


class Branch(dspy.Module):
    """Runs a program several times with different seeds and returns the prediction with the commonest answer.

    Among equally common answers the earliest wins. A failed run is noted and left out.

    Args:
        program: The program; a predictor with its own LM is not sampled.
        n: Number of runs; 1 runs the program as it is.
        temperature: Temperature of the model.
        field: The field of the prediction to count; answers are compared as exact match does.

    Raises:
        ConfigError: ``n`` is below 1, or the temperature is not above 0.
    """

    def __init__(self, program: Any, n: int = 1, temperature: float = 0.7, field: str = "answer"):
        super().__init__()
        if n < 1 or not temperature > 0:
            raise ConfigError(
                f"expected at least 1 branch and a temperature above 0, got {n} and {temperature}."
            )
        self.program = program
        self.n = n
        self.temperature = temperature
        self.field = field

    def forward(self, **inputs: Any) -> Any:
        """The winning run's prediction.

        Raises:
            DSPyError: Every run failed; this is the last error.
        """
        if self.n == 1:
            return self.program(**inputs)
        lm = dspy.settings.lm
        runs, failure = [], None
        for number in range(self.n):
            note("branch", number=number)
            try:
                with dspy.context(lm=lm.copy(temperature=self.temperature, seed=SPREAD * (number + 1))):
                    runs.append(self.program(**inputs))
            except dspy.DSPyError as error:
                failure = error
        if failure is not None and not runs:
            raise failure
        answers = [{self.field: run[self.field]} for run in runs]
        won = dspy.majority(answers, normalize=_normalised, field=self.field)[self.field]
        note("majority", answers=[answer[self.field] for answer in answers], answer=won)
        return next(run for run in runs if run[self.field] == won)


def sampled(predict: Callable[..., Any], n: int, temperature: float, **inputs: Any) -> list[Any]:
    """Predictions of one predictor: a single plain call for n = 1, else n draws at a temperature."""
    if n == 1:
        return [predict(**inputs)]
    first = int(dspy.settings.lm.kwargs.get("seed") or 0)
    draws = ({"temperature": temperature, "seed": first + number} for number in range(1, n + 1))
    return [predict(**inputs, config=draw) for draw in draws]


def _normalised(answer: str) -> str | None:
    return normalise_answer(answer) or None
