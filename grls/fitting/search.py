"""The anytime search of ``grls fit``: which stage is next, and how long it may take.

Stages stand in the order of their expected gain for their time. As soon as what a stage needs is there it has
a turn with its share of the time that is left, and stops itself when that is used up. What a stage has done
is kept, so one that was cut off goes on: at once where others need it and its rest fits, as it has measured,
else when all others had their turn. Nothing is skipped by a guess: a stage learns by working how long it
takes.

The module knows no retrievers: stages are functions, and time is a clock. A test runs it on simulated
machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from time import perf_counter
from typing import NamedTuple

from grls.errors import Option


class TimeIsUp(Exception):  # noqa: N818  it is no error of the run: what is done already stays
    """A stage has used its time, or has measured that it would not be done within it.

    ``seconds``: those that it still needs, as measured; 0: unknown.
    """

    def __init__(self, why: str = "the time was up before it was done", seconds: float = 0.0):
        super().__init__(why)
        self.seconds = seconds


class Allowance:
    """So many seconds from now on; infinitely many where there is no limit."""

    def __init__(self, seconds: float = inf):
        self.seconds = seconds
        self._begun = perf_counter()

    @property
    def spent(self) -> float:
        return perf_counter() - self._begun

    @property
    def left(self) -> float:
        """Below 0 when the time is up."""
        return self.seconds - self.spent


@dataclass(frozen=True)
class Stage:
    """Something that a run may do.

    Args:
        name: Its name; no other stage has it.
        work: What it does, in one line.
        run: Does it within its time, or raises :class:`TimeIsUp`; returns why it has no result, or None.
        needs: Names of the stages whose results it uses.
        share: The share of the time that is left which it may take, while others have not had their turn or
            need its result; 0: it waits for all others.
    """

    name: str
    work: str
    run: Callable[[Allowance], str | None]
    needs: tuple[str, ...] = ()
    share: float = 1.0


class Outcome(NamedTuple):
    """What has come of a stage.

    Attributes:
        seconds: Those that it took.
        nothing: Why it has no result; None: it has one.
        rest: The seconds that it needs still (0: unknown), if its time was up.
        waits: Whether it goes on when there is time left.
    """

    seconds: float = 0.0
    nothing: str | None = None
    rest: float | None = None
    waits: bool = False


def more_time(seconds: float) -> str:
    """The budget for what is measured to take so many seconds, half of that more in reserve."""
    return str(Option("budget", f"+{ceil(1.5 * seconds / 60)}m"))


def search_stages(
    stages: Sequence[Stage],
    outcomes: dict[str, Outcome],
    left: Callable[[], float],
    do: Callable[[Stage, float, bool], Outcome],
    say: Callable[[str, str], None] = lambda *_: None,
) -> None:
    """Do the stages that there is time for.

    Args:
        stages: In the order of their expected gain for their time, those that a stage needs before it.
        outcomes: Stage -> what has come of it in earlier calls; at the end it holds all stages.
        left: The seconds that are left for stages; infinitely many: no limit.
        do: Does a stage within so many seconds (``True``: it was cut off, and goes on).
        say: Prints a stage and what has come of it.
    """

    def is_open(stage: Stage) -> bool:
        return stage.name not in outcomes or outcomes[stage.name].waits

    def lacks(stage: Stage) -> list[str]:
        return [need for need in stage.needs if need not in outcomes or outcomes[need].nothing is not None]

    def needed(stage: Stage) -> bool:
        return any(is_open(other) and stage.name in other.needs for other in stages)

    while ready := [stage for stage in stages if is_open(stage) and not lacks(stage)]:
        room = left()
        first = (
            stage
            for stage in ready
            if (before := outcomes.get(stage.name)) is None
            or (needed(stage) and (before.rest or 0.0) <= stage.share * room)
        )
        stage = next(first, ready[0])
        name, again = stage.name, stage.name in outcomes
        seconds = room if room == inf or (again and not needed(stage)) else stage.share * room
        if seconds > 0:
            if again and stage.share:
                say(name, "goes on, with the time that is left")
            outcome = do(stage, seconds, again)
        else:
            outcome = outcomes.get(name) or Outcome(0.0, "no time was left for it", 0.0)
        if outcome.rest is not None and not again:
            if seconds > 0:
                say(name, f"{outcome.nothing}; it goes on if there is time left")
            outcomes[name] = outcome._replace(waits=True)
            continue
        if outcome.rest is not None:
            time = more_time(outcome.rest) if outcome.rest else "more time"
            why = f"left out: {outcome.nothing}; another call with {time} goes on"
            outcome = Outcome(outcome.seconds, why, outcome.rest)
        outcomes[name] = outcome
        if outcome.nothing is not None:
            say(name, outcome.nothing)
    for stage in stages:
        if is_open(stage):
            outcomes[stage.name] = Outcome(nothing=f"there is no {lacks(stage)[0]}")
