"""The anytime search on simulated machines, with a clock that only stages turn."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from grls.fitting.choose import Candidate, choose
from grls.fitting.search import MARGIN, Pace, Stage, TimeIsUp, search_stages

BUDGET = 1200.0
UNITS = {"bm25": 4.0, "base": 60.0, "bm25-hops": 25.0, "base-hops": 80.0, "dense": 240.0}
UNITS |= {"dense-hops": 90.0, "generator": 500.0, "hybrid": 220.0}
"""Seconds of stages on the machine that nothing disturbs."""
NEEDS = {"dense": ("base",), "base-hops": ("base",), "bm25-hops": ("bm25",), "dense-hops": ("dense",)}
NEEDS |= {"generator": ("bm25",), "hybrid": ("generator",)}
FOLLOWED = {"generator": ("generator", 0.45), "dense": ("base-hops", 1.0)}
"""Stage -> the stage that tells the time of what must follow it, and its share."""
SHARES = {"base": 0.35, "bm25-hops": 0.1, "base-hops": 0.3, "dense": 0.5, "dense-hops": 0.4}
LIKE = {"base-hops": "base", "dense-hops": "base-hops", "dense": "base", "generator": "dense"}
WORTH = {"bm25": 0.62, "bm25-hops": 0.68, "base": 0.66, "base-hops": 0.75, "dense": 0.7}
WORTH |= {"dense-hops": 0.9, "hybrid": 0.93}


@dataclass
class Machine:
    """A machine whose work takes so many times longer, which changes as it works."""

    draw: random.Random
    slowness: float = 1.0
    changing: bool = True
    elastic: bool = True
    now: float = 0.0
    pace: Pace = field(default_factory=Pace)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    embedded: float = 0.0
    began: list[str] = field(default_factory=list)

    def left(self) -> float:
        return max(0.0, 0.95 * BUDGET - self.now)

    def work(self, name: str, allowance: float | None) -> None:
        """The stage takes its time, or ends when its time is up; a training does what fits."""
        self.began.append(name)
        seconds, done = UNITS[name], self.embedded if name == "base" else 0.0
        before = done
        while done < seconds:
            step = min(5.0, seconds - done)
            if self.changing and self.draw.random() < 0.02:
                self.slowness = self.draw.uniform(1.0, 8.0)
            self.now += step * self.slowness
            done += step
            spent = self.now - self.begun
            if allowance is not None and spent > allowance and done < seconds:
                if name in ("dense", "generator") and self.elastic and done > 0.2 * seconds:
                    break  # as many steps as there was time for
                if name == "base":  # it goes on where it was cut off
                    self.embedded = done
                    self.pace.add(name, spent / (done - before) * (seconds - done))
                raise TimeIsUp
        self.pace.add(name, (self.now - self.begun) / max(done - before, 1e-9) * seconds)

    def stage(self, name: str) -> Stage:
        def run(allowance: float | None) -> None:
            self.begun = self.now
            self.work(name, allowance)
            if name in WORTH:
                noise = random.Random(f"{name}{self.draw.random()}")
                values = [float(noise.random() < WORTH[name]) for _ in range(60)]
                self.candidates[name] = Candidate(name, values, values, UNITS[name])

        def known(stage: str) -> float:
            """By the stage itself, or by one that is like it; 0: nothing is known."""
            measured, of = self.pace.of(stage), LIKE.get(stage)
            if measured or of is None:
                return measured
            return known(of) * UNITS[stage] / UNITS[of]

        like, share = FOLLOWED.get(name, (name, 0.0))
        follows: Callable[[], float] = lambda: share * known(like)  # noqa: E731
        least = 0.3 if name in ("dense", "generator") else 1.0
        return Stage(
            name, name, run, NEEDS.get(name, ()), lambda: least * known(name) + follows(), follows,
            lambda _: SHARES.get(name, 1.0), name in ("bm25-hops", "base-hops"),
        )  # fmt: skip

    def go(self) -> list[str]:
        def do(stage: Stage, allowance: float | None) -> str | None:
            stage.run(allowance)
            return None

        skipped = search_stages([self.stage(name) for name in UNITS], self.left, do)
        return [one.name for one in skipped]


@pytest.mark.parametrize("changing", [False, True])
def test_a_thousand_machines_keep_the_budget_and_the_best(changing: bool) -> None:
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
        ends.append(machine.now)
    assert max(ends) > 0.8 * BUDGET


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
    done: list[str] = []

    def do(stage: Stage, allowance: float | None) -> str | None:
        assert allowance is None
        done.append(stage.name)
        return None

    assert search_stages([machine.stage(name) for name in UNITS], lambda: None, do) == []
    assert done == list(UNITS)


def test_a_stage_leaves_the_time_of_what_must_follow_it() -> None:
    allowances = {}

    def do(stage: Stage, allowance: float | None) -> str | None:
        allowances[stage.name] = allowance
        return None

    train = Stage("train", "", lambda _: None, seconds=lambda: 40.0, follows=lambda: 30.0)
    search_stages([train], lambda: 100.0, do)
    assert allowances == {"train": 100.0 - MARGIN * 30.0}
    (skipped,) = search_stages([train], lambda: 39.0, do)
    assert skipped.why == "it needs more than the 39 s that are left"


def test_a_stage_aside_that_is_above_its_share_waits_and_says_so() -> None:
    lines: list[str] = []
    done: list[str] = []
    stages = [
        Stage("hops", "", lambda _: None, seconds=lambda: 30.0, share=lambda _: 0.1, aside=True),
        Stage("train", "", lambda _: None, seconds=lambda: 50.0),
    ]
    assert search_stages(stages, lambda: 100.0, lambda stage, _: done.append(stage.name), lines.append) == []
    assert done == ["train", "hops"]
    assert lines == [
        "hops: waits for what gains more",
        "hops: its turn has come, with the time that is left",
    ]


def test_what_was_cut_off_by_its_share_has_another_turn() -> None:
    turns: list[float | None] = []

    def do(stage: Stage, allowance: float | None) -> str | None:
        turns.append(allowance)
        if len(turns) == 1:
            raise TimeIsUp
        return None

    known = Stage("embed", "", lambda _: None, seconds=lambda: 40.0 * len(turns), share=lambda _: 0.3)
    assert search_stages([known], lambda: 100.0, do) == []
    assert turns == [30.0, MARGIN * 40.0]  # what it needs is known then


def test_what_does_not_fit_begins_at_the_end_if_a_later_call_goes_on_with_it() -> None:
    turns: list[tuple[str, float | None, bool]] = []
    lines: list[str] = []

    def do(stage: Stage, allowance: float | None) -> str | None:
        turns.append((stage.name, allowance, stage.run is stage.begin))
        if stage.name == "embed":
            raise TimeIsUp
        return None

    begin: Callable[[float | None], None] = lambda _: None  # noqa: E731
    stages = [
        Stage("embed", "", lambda _: None, seconds=lambda: 900.0, begin=begin),
        Stage("train", "", lambda _: None, needs=("embed",)),
        Stage("hops", "", lambda _: None, seconds=lambda: 30.0, share=lambda _: 0.1, aside=True),
        Stage("large", "", lambda _: None, seconds=lambda: 700.0),
    ]
    skipped = search_stages(stages, lambda: 100.0, do, lines.append)
    assert turns == [("hops", 100.0, False), ("embed", 100.0, True)]
    assert "embed: begins, with the 2 min that nothing else can use" in lines
    assert [(one.name, one.why, one.seconds) for one in skipped] == [
        ("embed", "left out: the time was up before it was done; a later call goes on with it", 900.0),
        ("train", "there is no embed", None),
        ("large", "it needs more than the 2 min that are left", 700.0),
    ]


def test_what_needs_a_failed_stage_is_skipped_with_that_reason() -> None:
    stages = [Stage("a", "an a", lambda _: None), Stage("b", "a b", lambda _: None, needs=("a",))]
    skipped = search_stages(stages, lambda: None, lambda stage, _: "left out: it failed: no memory")
    assert [(one.name, one.why) for one in skipped] == [
        ("a", "left out: it failed: no memory"),
        ("b", "there is no a"),
    ]


def test_times_follow_the_load_of_the_machine() -> None:
    load = [8.0]
    pace = Pace(2, lambda: load[0])
    pace.add("embed", 100.0, 50)
    assert pace.of("embed") == pytest.approx(2.0)
    load[0] = 1.0
    assert pace.of("embed") == pytest.approx(0.5)  # a busy start does not starve a quiet rest
    assert pace.of("other") == 0.0
