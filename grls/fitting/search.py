"""The anytime search of ``grls fit``: which stage next, is there time for it, run it, choose.

Stages stand in the order of their expected gain for their time. A stage begins only if its own time and that
of what must follow for its result to be of use fit into what is left, by times that were measured in this
run; it ends early enough for what follows. There are three rounds. In the first, a stage that can do more or
less takes no more than its share of the time that is left, and one that gains less than later ones stands
aside if it needs more than its share. In the second it has its turn. In the third nothing else can use the
time, so a stage that does not fit begins if a later call can go on with it.

The module knows no retrievers: stages are functions, and time is a clock. A test runs it on simulated
machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from grls.io.progress import duration

MARGIN = 1.25  # estimates are made longer by this: the machine may get slower


class TimeIsUp(Exception):  # noqa: N818  it is no error of the run: what is done already stays
    """A stage has used its time, or its loops show that it would not be done within it."""

    def __init__(self, why: str = "the time was up before it was done"):
        super().__init__(why)


class Pace:
    """Seconds of units of work as measured in this run, under the load (processes that work) of the time."""

    def __init__(self, cores: int = 1, load: Callable[[], float] = lambda: 0.0):
        self._cores, self._load = cores, load
        self.known: dict[str, float] = {}
        """Kind -> seconds of a unit on an idle machine."""

    def _stretch(self) -> float:
        """How much longer work takes than on an idle machine."""
        return max(1.0, self._load() / self._cores)

    def add(self, kind: str, seconds: float, units: float = 1.0) -> None:
        """Record that so many units took so many seconds; the last measurement counts."""
        self.known[kind] = seconds / max(units, 1e-9) / self._stretch()

    def of(self, kind: str) -> float:
        """Seconds of a unit under the load of now; 0: it was not measured."""
        return self.known.get(kind, 0.0) * self._stretch()


@dataclass(frozen=True)
class Stage:
    """Something that a run may do.

    Args:
        name: Its name; no other stage has it.
        work: What it does, in one line.
        run: Does it within so many seconds (None: no limit); returns why it has no result, or None. It
            raises :class:`TimeIsUp` where it cannot.
        needs: Names of the stages whose results it uses.
        seconds: The least seconds of it and of all that must follow it; 0: nothing is known yet.
        follows: Seconds of what must follow it, which it leaves.
        share: The share of so many seconds that are left which it may take in the first round, or what it
            needs at least if that is more.
        aside: It waits for the second round where it needs more than its share; always, with a share of 0.
        begin: Begins it though it does not fit: a later call goes on with it; None: it cannot go on.
    """

    name: str
    work: str
    run: Callable[[float | None], str | None]
    needs: tuple[str, ...] = ()
    seconds: Callable[[], float] = lambda: 0.0
    follows: Callable[[], float] = lambda: 0.0
    share: Callable[[float], float] = lambda _: 1.0
    aside: bool = False
    begin: Callable[[float | None], str | None] | None = None


class Skipped(NamedTuple):
    """A stage that was not done: its name, what it would have done, and why.

    ``seconds``: those that it needs (0: unknown) if there was too little time for it.
    """

    name: str
    what: str
    why: str
    seconds: float | None = None


def search_stages(
    stages: Sequence[Stage],
    left: Callable[[], float | None],
    do: Callable[[Stage, float | None], str | None],
    say: Callable[[str], None] = lambda _: None,
    known: dict[str, str | None] | None = None,
) -> list[Skipped]:
    """Do the stages that there is time for; returns what was not done, and why.

    Args:
        stages: In the order of their expected gain for their time, those that a stage needs before it.
        left: The seconds that are left for stages; None: no limit.
        do: Does a stage within so many seconds; returns why it has no result, or None. A stage that raises
            :class:`TimeIsUp` in the first round has another turn in the second.
        say: Prints a line.
        known: Stages that earlier calls have done -> why they have no result, or None; the others are added.
    """
    ended: dict[str, str | None] = {} if known is None else known
    waiting: set[str] = set()
    lacked: dict[str, float] = {}
    turns = deque([(stage, turn) for turn in range(3) for stage in stages])
    while turns:
        stage, turn = turns.popleft()
        name, last, late = stage.name, turn > 0, turn > 1
        if name in ended:
            continue
        lacking = [need for need in stage.needs if ended.get(need, "") is not None]
        if lacking:
            if late or lacking[0] in ended:
                ended[name] = f"there is no {lacking[0]}"
            continue
        room, allowance = left(), None
        if room is not None:
            margin = 1.0 if last else MARGIN  # in the end there is nothing else to do with the time
            needed, later = margin * stage.seconds(), margin * stage.follows()
            most = room if last else stage.share(room) * room
            if not stage.aside:
                most = min(room, max(most, needed))
            allowance = most - later
            if needed > most or allowance <= 0:
                if late and stage.begin is not None and room > 0:
                    stage, allowance = replace(stage, run=stage.begin), room
                    waiting.discard(name)
                    say(f"{name}: begins, with the {duration(room)} that nothing else can use")
                else:
                    if last and (late or stage.begin is None):
                        ended[name] = f"it needs more than the {duration(room)} that are left"
                        lacked[name] = needed
                        say(f"{name}: skipped: {ended[name]}")
                    elif stage.aside and most < needed <= room:
                        waiting.add(name)
                        say(f"{name}: waits for what gains more")
                    continue
        if name in waiting:
            say(f"{name}: its turn has come, with the time that is left")
        try:
            ended[name] = do(stage, allowance)
        except TimeIsUp as end:
            if not last or (stage.begin is not None and not late):  # its time is known now
                say(f"{name}: {end}; it goes on if that pays")
                if not stage.aside and not last and name not in waiting:
                    turns.appendleft((stage, 0))
                waiting.add(name)
                continue
            goes_on = "" if stage.begin is None else "; a later call goes on with it"
            ended[name] = f"left out: {end}{goes_on}"
            lacked[name] = stage.seconds()
        if ended[name] is not None:
            say(f"{name}: {ended[name]}")
    return [
        Skipped(stage.name, stage.work, why, lacked.get(stage.name))
        for stage in stages
        if (why := ended[stage.name])
    ]
