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


class Skipped(NamedTuple):
    """A stage that was not done: its name, what it would have done, and why.

    ``seconds``: those that it needs (0: unknown) if there was too little time for it.
    """

    name: str
    what: str
    why: str
    seconds: float | None = None


def more_time(seconds: float) -> str:
    """The budget for what is measured to take so many seconds, half of that more in reserve."""
    return str(Option("budget", f"+{ceil(1.5 * seconds / 60)}m"))


def search_stages(
    stages: Sequence[Stage],
    left: Callable[[], float],
    do: Callable[[Stage, float, bool], str | None],
    say: Callable[[str, str], None] = lambda *_: None,
    known: dict[str, str | None] | None = None,
) -> list[Skipped]:
    """Do the stages that there is time for; returns what was not done, and why.

    Args:
        stages: In the order of their expected gain for their time, those that a stage needs before it.
        left: The seconds that are left for stages; infinitely many: no limit.
        do: Does a stage within so many seconds (``True``: it was cut off, and goes on); returns why it has no
            result, or None.
        say: Prints a stage and what has come of it.
        known: Stages that earlier calls have done -> why they have no result, or None; the others are added.
    """
    ended: dict[str, str | None] = {} if known is None else known
    cut: dict[str, TimeIsUp] = {}

    def needed(stage: Stage) -> bool:
        return any(other.name not in ended and stage.name in other.needs for other in stages)

    while ready := [
        stage
        for stage in stages
        if stage.name not in ended and all(ended.get(need, "") is None for need in stage.needs)
    ]:
        room = left()
        first = (
            stage
            for stage in ready
            if stage.name not in cut or (needed(stage) and cut[stage.name].seconds <= stage.share * room)
        )
        stage = next(first, ready[0])
        name, again = stage.name, stage.name in cut
        seconds = room if room == inf or (again and not needed(stage)) else stage.share * room
        try:
            if seconds <= 0:
                raise cut.get(name) or TimeIsUp("no time was left for it")
            if again and stage.share:
                say(name, "goes on, with the time that is left")
            ended[name] = do(stage, seconds, again)
        except TimeIsUp as end:
            if again:
                time = more_time(end.seconds) if end.seconds else "more time"
                ended[name] = f"left out: {end}; another call with {time} goes on"
            elif seconds:
                say(name, f"{end}; it goes on if there is time left")
            cut[name] = end
        if ended.get(name) is not None:
            say(name, str(ended[name]))
    skipped = []
    for stage in stages:
        lacks = [need for need in stage.needs if ended.get(need, "") is not None]
        why = ended.setdefault(stage.name, f"there is no {lacks[0]}" if lacks else None)
        if why is not None:
            lacked = cut[stage.name].seconds if stage.name in cut else None
            skipped.append(Skipped(stage.name, stage.work, why, lacked))
    return skipped
