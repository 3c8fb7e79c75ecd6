"""The anytime search on simulated machines, with a clock that only stages turn."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import pytest

from grls.fitting.choose import Candidate, choose
from grls.fitting.search import Allowance, Outcome, Stage, TimeIsUp, search_stages

BUDGET = 1200.0
UNITS = {"bm25": 4.0, "bm25-hops": 25.0, "base": 60.0, "base-hops": 80.0, "dense": 240.0}
UNITS |= {"dense-hops": 90.0, "generator": 500.0, "hybrid": 220.0}
"""Seconds of stages on the machine that nothing disturbs, of ``dense`` with its embedding."""
NEEDS = {"dense": ("base",), "base-hops": ("base",), "bm25-hops": ("bm25",), "dense-hops": ("dense",)}
NEEDS |= {"generator": ("bm25",), "hybrid": ("generator",)}
SHARES = {"bm25-hops": 0.1, "base-hops": 0.3, "generator": 0.6}
LEAST = {"dense": 36.0, "generator": 150.0}
"""Training -> the seconds of its fewest steps."""
EMBEDDING = 60.0
WORTH = {"bm25": 0.62, "bm25-hops": 0.68, "base": 0.66, "base-hops": 0.75, "dense": 0.7}
WORTH |= {"dense-hops": 0.9, "hybrid": 0.93}


@dataclass
class Machine:
    """A machine whose work takes so many times longer, which changes as it works."""

    draw: random.Random
    slowness: float = 1.0
    changing: bool = True
    now: float = 0.0
    candidates: dict[str, Candidate] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    hops: float = 0.0
    """The seconds of hops, once they were measured."""

    def left(self) -> float:
        return max(0.0, 0.95 * BUDGET - self.now)

    def work(self, name: str, seconds: float, end: float, again: bool = True) -> None:
        """So much work, which goes on where it was cut off; at first its pace may tell that it will be."""
        begun, before = self.now, self.done.get(name, 0.0)
        while (done := self.done.get(name, 0.0)) < seconds:
            needed = (seconds - done) * (self.now - begun) / max(done - before, 1e-9)
            told = not again and self.now - begun > max(10.0, 0.1 * (end - begun))
            if self.now > end or (told and needed > 1.5 * (end - self.now)):
                raise TimeIsUp(seconds=needed)
            step = min(5.0, seconds - done)
            if self.changing and self.draw.random() < 0.02:
                self.slowness = self.draw.uniform(1.0, 8.0)
            self.now += step * self.slowness
            self.done[name] = done + step

    def train(self, name: str, end: float) -> None:
        """As many steps as fit, by the pace of the first ones; none where these are too few."""
        if f"{name} trained" not in self.done:
            begun = self.now
            self.work(f"{name} measured {begun}", 10.0, end)
            fits = 10.0 * (end - self.now) / (self.now - begun)
            if fits < LEAST[name]:
                raise TimeIsUp(seconds=LEAST[name] * (self.now - begun) / 10.0)
            whole = UNITS[name] - (EMBEDDING if name == "dense" else 0.0)
            while self.now < end and self.done.get(name, 0.0) < whole:
                self.work(name, self.done.get(name, 0.0) + 5.0, end)
            self.done[f"{name} trained"] = 1.0

    def stage(self, name: str) -> Stage:
        def run(allowance: Allowance) -> None:
            again = name in self.begun
            self.begun.add(name)
            end = self.now + allowance.seconds
            begun = self.now
            if name == "dense":
                follows = 1.25 * (EMBEDDING * self.slowness + self.hops)
                self.train(name, min(begun + 0.8 * (end - begun), end - follows))
                self.work("dense embedded", EMBEDDING, end)
            elif name == "generator":
                self.train(name, end)
            else:
                try:
                    self.work(name, UNITS[name], end, again)
                except TimeIsUp as late:
                    self.hops = self.now - begun + late.seconds if name == "base-hops" else self.hops
                    raise
            self.hops = self.now - begun if name == "base-hops" else self.hops
            if name in WORTH:
                noise = random.Random(f"{name}{self.draw.random()}")
                values = [float(noise.random() < WORTH[name]) for _ in range(60)]
                self.candidates[name] = Candidate(name, values, values, UNITS[name])

        return Stage(name, name, run, NEEDS.get(name, ()), SHARES.get(name, 1.0))

    def go(self) -> list[str]:
        def do(stage: Stage, seconds: float, again: bool) -> Outcome:
            try:
                return Outcome(nothing=stage.run(Allowance(seconds)))
            except TimeIsUp as end:
                return Outcome(0.0, str(end), end.seconds)

        outcomes: dict[str, Outcome] = {}
        search_stages([self.stage(name) for name in UNITS], outcomes, self.left, do)
        return [name for name, outcome in outcomes.items() if outcome.nothing]


@pytest.mark.parametrize("changing", [False, True])
def test_a_thousand_machines_keep_the_budget_use_it_and_keep_the_best(changing: bool) -> None:
    """A loaded machine ended with most of its time unused: its steps were guessed to be slower."""
    ends = []
    for seed in range(1000):
        draw = random.Random(seed)
        machine = Machine(draw, draw.uniform(1.0, 8.0), changing)
        skipped = machine.go()
        assert machine.now <= 1.05 * BUDGET, seed
        assert machine.candidates, seed  # never nothing
        assert set(skipped).isdisjoint(machine.candidates)
        kept = choose(list(machine.candidates.values())).chosen
        for other in machine.candidates.values():
            gap = other.value - kept.value
            assert gap <= 0.2, (seed, kept.name, other.name)  # within one standard error of 60 queries
        if skipped:
            ends.append(machine.now)
    assert max(ends) > 0.8 * BUDGET
    assert sum(ends) / len(ends) > 0.6 * BUDGET


def test_twice_the_load_is_at_most_one_stage_worse() -> None:
    ranked = sorted(WORTH, key=lambda name: WORTH[name])
    for slowness in (1.0, 1.25, 1.5, 2.0, 3.0, 4.0):
        quiet = Machine(random.Random(0), slowness, changing=False)
        busy = Machine(random.Random(0), 2 * slowness, changing=False)
        quiet.go(), busy.go()
        best = max(quiet.candidates, key=lambda name: WORTH[name])
        now = max(busy.candidates, key=lambda name: WORTH[name])
        worse = [name for name in ranked[ranked.index(now) + 1 : ranked.index(best) + 1] if name != "dense"]
        assert len(worse) <= 1, (slowness, best, now)  # dense alone is a part of its hops


def test_without_a_limit_everything_is_done() -> None:
    machine = Machine(random.Random(0), 8.0, changing=False)
    turns: list[tuple[str, float]] = []
    outcomes: dict[str, Outcome] = {}
    search_stages([machine.stage(name) for name in UNITS], outcomes, lambda: inf, cut_off({}, turns))
    assert turns == [(name, inf) for name in UNITS]
    assert {*outcomes.values()} == {Outcome()}


def plain(name: str, share: float = 1.0, needs: tuple[str, ...] = ()) -> Stage:
    return Stage(name, name, lambda _: None, needs, share)


def cut_off(
    names: dict[str, int], turns: list[tuple[str, float]], needed: float = 0.0
) -> Callable[[Stage, float, bool], Outcome]:
    """Does stages, and cuts these off so many times, which need these seconds then."""

    def do(stage: Stage, seconds: float, again: bool) -> Outcome:
        turns.append((stage.name, seconds))
        if names.get(stage.name, 0):
            names[stage.name] -= 1
            return Outcome(1.0, "its time was up", needed)
        return Outcome()

    return do


def test_what_was_cut_off_by_its_share_goes_on_when_all_others_had_their_turn() -> None:
    turns: list[tuple[str, float]] = []
    lines: list[tuple[str, str]] = []
    stages = [plain("more", 0.0), plain("hops", 0.1), plain("train", 0.5)]
    search_stages(stages, {}, lambda: 100.0, cut_off({"hops": 1}, turns), lambda *line: lines.append(line))
    assert turns == [("hops", 10.0), ("train", 50.0), ("more", 100.0), ("hops", 100.0)]
    assert lines == [
        ("hops", "its time was up; it goes on if there is time left"),
        ("hops", "goes on, with the time that is left"),
    ]


def test_what_others_wait_for_goes_on_at_once_where_its_rest_fits() -> None:
    for needed, order in ((30.0, "embed embed words train"), (31.0, "embed words embed train")):
        turns: list[tuple[str, float]] = []
        stages = [plain("embed", 0.3), plain("words", 0.5), plain("train", needs=("embed",))]
        search_stages(stages, {}, lambda: 100.0, cut_off({"embed": 1}, turns, needed))
        assert [name for name, _ in turns] == order.split()
        assert [allowance for name, allowance in turns if name == "embed"] == [30.0, 30.0]


def test_what_there_is_no_time_for_is_said() -> None:
    turns: list[tuple[str, float]] = []
    lines: list[tuple[str, str]] = []
    stages = [plain("embed"), plain("train", needs=("embed",)), plain("late")]
    left, outcomes = iter([100.0, 50.0, 0.0, 0.0]), dict[str, Outcome]()
    search_stages(
        stages, outcomes, lambda: next(left), cut_off({"embed": 2}, turns, 40.0),
        lambda *line: lines.append(line),
    )  # fmt: skip
    assert turns == [("embed", 100.0), ("embed", 50.0)]
    more = 'another call with budget="+1m" goes on'
    late = "left out: no time was left for it; another call with more time goes on"
    assert outcomes == {
        "embed": Outcome(1.0, f"left out: its time was up; {more}", 40.0),
        "train": Outcome(0.0, "there is no embed"),
        "late": Outcome(0.0, late, 0.0),
    }
    assert lines[-1] == ("late", late)


def test_what_needs_a_failed_stage_is_skipped_with_that_reason() -> None:
    failed, outcomes = Outcome(1.0, "left out: it failed: no memory"), dict[str, Outcome]()
    search_stages([plain("a"), plain("b", needs=("a",))], outcomes, lambda: inf, lambda *_: failed)
    assert outcomes == {"a": failed, "b": Outcome(0.0, "there is no a")}
