"""The time of a run: what is left of its budget, and how much of it the next stage may take."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

_AIM = 0.97
"""The share of a budget that is aimed at: stages end a little late."""


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
