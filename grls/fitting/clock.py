"""The time of a run: what is left of its budget, and how much of it the next stage may take."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

_ENDING = 15.0
"""Seconds that are kept for the end of a run, at most a tenth of its budget."""

_AIM = 0.97
"""The share of a budget that is aimed at: stages end a little late."""


class TimeIsUp(Exception):  # noqa: N818  it is no error of the run: what is done already is compared
    """A stage has used all the time of the run."""


class FitClock:
    """Counts the seconds of a run.

    Args:
        budget: The time for everything in seconds; None: no limit.
        spent: Seconds of earlier calls.
        now: The time in seconds.
    """

    def __init__(self, budget: float | None = None, spent: float = 0.0, now: Callable[[], float] = monotonic):
        self.budget = budget
        self._spent = spent
        self._now = now
        self._begun = now()

    @property
    def seconds(self) -> float:
        """Seconds of the whole run so far."""
        return self._spent + self._now() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds that are left; None: there is no limit."""
        return None if self.budget is None else max(0.0, _AIM * self.budget - self.seconds)

    @property
    def is_up(self) -> bool:
        """Whether the time that is left is needed for the end of the run."""
        left = self.left
        return left is not None and left < min(_ENDING, 0.1 * (self.budget or 0.0))

    def allowance(self, estimate: float, later: float) -> float | None:
        """Seconds that a stage may take; None: there is no limit.

        What the later stages do not need is its own. If time is short, all get the same share of their
        estimates.

        Args:
            estimate: The estimate of its time.
            later: The sum of the estimates of the stages after it.
        """
        left = self.left
        if left is None:
            return None
        return max(left - later, left * estimate / max(estimate + later, 1e-9))
