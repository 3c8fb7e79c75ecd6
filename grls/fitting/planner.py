"""Chooses what is done: the richest level that fits the budget, and within it as much as fits.

A plan fits if its estimate is within the budget less a margin, since estimates of a busy machine are rough.
While it runs it is revised: what is left is chosen anew for the time that is left, at the pace so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from grls.errors import ConfigError
from grls.fitting.effort import (
    LEVELS,
    WITHOUT_ENCODER,
    Effort,
    Level,
    effort_at,
    kept_effort,
)
from grls.fitting.facts import DataFacts, data_facts
from grls.fitting.machine import Machine, this_machine
from grls.fitting.models import BaseModels, base_models
from grls.fitting.options import FitOptions
from grls.fitting.plain import copy_size
from grls.fitting.plan import Plan, Skipped, Stage
from grls.fitting.skipped import (
    NO_TIME,
    SKIPPED_PARTS,
    TOO_LATE,
    WRITER_HOPS,
    few_queries,
    part_of_level,
    parts_skipped,
)
from grls.fitting.speeds import Speeds
from grls.fitting.stages import StageMaker
from grls.fitting.timing import forget_speeds, known_speeds
from grls.io.counts import counted
from grls.io.progress import duration

MARGIN = 0.08
"""The share of a budget that a plan leaves."""

_LATE = 0.03
"""The same of a plan that is revised."""

_FAST = Speeds(1e-4, 1e-4)
"""Of BM25, on a fast machine."""

_HALVINGS = 20
_DISK = 6.0
"""GiB that a generator's checkpoints take."""
_BEGUN = "stages/generator"
"""The folder of a generator that a run has begun: what it fills itself is no reason to leave it out."""
_ROW_BYTES = 100.0
"""Memory of a row of the index while it is built and searched."""
_PACE = 0.4, 4.0
_TELLING = 20.0
"""Seconds that a stage takes at least to tell the pace."""
_LEFT_OUT = 0.05
"""The share of its estimate that a stage takes at least, if it was not left out."""


def make_plan(data: str | Path, output: str | Path, options: FitOptions, copies: bool = False) -> Plan:
    """Look at data, machine and models, measure a few steps, and choose what is done.

    Measurements are kept in ``output`` for the run that follows. If there is no plan, they are not kept.

    Args:
        data: Data set folder in BEIR's layout, with queries to learn from and dev queries.
        output: Where the run writes.
        options: What the user has chosen.
        copies: Keep plain weights of the generator in ``output``: a run follows.

    Raises:
        ConfigError: There is no such model, or the budget is too short for anything.
        DataError: The data are missing or malformed, or a split has no gold passages.
    """
    facts = data_facts(data, options.train_split, options.dev_split, options.test_split)
    machine = this_machine(output, options.device)
    models = base_models(options.biencoder, options.generator, machine, facts.language)
    if not (Path(output) / _BEGUN).is_dir():
        models = models_that_fit(models, machine, facts)
    _refuse_hopeless(StageMaker(facts, machine, models, _FAST, options))

    def enough(speeds: Speeds, spent: float) -> bool:
        maker = StageMaker(facts, machine, models, speeds, options)
        at = partial(effort_at, facts=facts, gpu=bool(machine.gpu))
        room = (1 - MARGIN) * (options.seconds or math.inf) - spent
        return _most(partial(at, _levels(maker)[0]), maker.stages, room) is not None

    new = not Path(output).exists()
    speeds, measured = known_speeds(data, output, facts, machine, models, options, enough, copies)
    try:
        return chosen_plan(facts, machine, models, speeds, options, measured)
    except ConfigError:
        forget_speeds(output, new)  # of a busy machine, perhaps
        raise


def models_that_fit(models: BaseModels, machine: Machine, facts: DataFacts) -> BaseModels:
    """The models without a generator that the machine cannot hold: its checkpoints on disk, its index in
    memory; or that has too few queries to learn from.
    """
    index = facts.rows * _ROW_BYTES / 2**30
    needed = _DISK + (0.0 if models.generator is None else copy_size(models.generator.name))
    if facts.few:
        why = few_queries(facts)
    elif machine.disk < needed:
        why = f"{machine.disk:.1f} GiB of disk are free, and its training takes {needed:.0f}: free some"
    elif index > machine.room:
        why = f"the index of all spans takes {index:.0f} GiB, and {machine.room:.0f} of memory are free"
    else:
        return models
    if models.generator is None:
        return models
    return replace(models, generator=None, without={**models.without, "generator": why})


def chosen_plan(
    facts: DataFacts,
    machine: Machine,
    models: BaseModels,
    speeds: Speeds,
    options: FitOptions,
    measured: float = 0.0,
) -> Plan:
    """Choose what is done.

    Args:
        facts: What the data are like.
        machine: What the machine can do.
        models: The models to begin with.
        speeds: How long the parts take.
        options: What the user has chosen.
        measured: Seconds that were spent so far.

    Raises:
        ConfigError: The budget is too short for anything.
    """
    maker = StageMaker(facts, machine, models, speeds, options)
    levels = _levels(maker)
    room = None if options.seconds is None else (1 - MARGIN) * options.seconds - measured

    def at(level: Level, share: float) -> Effort:
        return effort_at(level, share, facts, bool(machine.gpu))

    for level in levels:
        effort = _most(lambda share, level=level: at(level, share), maker.stages, room)  # type: ignore[misc]
        if effort is not None:
            skipped = _skipped(maker, effort, at, measured)
            stages = tuple(maker.stages(effort))
            return Plan(
                facts, machine, models, options, speeds, effort, stages, skipped, options.seconds, measured
            )
    raise _too_short(maker, _total(maker.stages(at(levels[-1], 0.0))), measured)


def _refuse_hopeless(maker: StageMaker) -> None:
    """Refuse a budget that is too short for anything on any machine, before anything is measured.

    Raises:
        ConfigError: It is.
    """
    facts, budget = maker.facts, maker.options.seconds
    least = _total(maker.stages(effort_at(LEVELS[-1], 0.0, facts, False)))
    if budget is not None and least > (1 - MARGIN) * budget:
        raise _too_short(maker, least)


def _too_short(maker: StageMaker, least: float, measured: float = 0.0) -> ConfigError:
    """The error of a budget: ``least`` seconds are needed, after those that went into measuring."""
    enough = _as_budget((least + measured) / (1 - MARGIN))
    words = f"BM25 over {counted(maker.facts.passages, 'passage')} takes {duration(least)}"
    if measured <= least:
        why, other = words, ""
    else:
        why = f"to measure the models took {duration(measured)}, and {words} more"
        other = ", call again when the machine is less busy, or leave models out: --generator none"
    return ConfigError(
        f"--budget {maker.options.budget} is too short for anything: {why}. Give --budget {enough} or "
        f"more{other}."
    )


def revised_plan(
    plan: Plan, took: Mapping[str, float], spent: float | None = None, hops_win: bool = False
) -> Plan:
    """What is left of a plan, chosen anew for the time that is left.

    Stages that are done stay as they are. The others are thought to take as much longer (or shorter) than
    their estimates as those that are done.

    Args:
        plan: The plan so far.
        took: Seconds that stages took, by :attr:`~grls.fitting.plan.Stage.key`.
        spent: Seconds since the beginning; None: those of planning and of the stages.
        hops_win: The bi-encoder was measured to find clearly more by hops, so that the generator takes them.

    Returns:
        The plan with the stages that are done, then what is left; the same plan where there is neither a
        budget nor a new measurement.
    """
    if not took or (plan.budget is None and not hops_win):
        return plan
    if not hops_win:
        return _chosen_anew(plan, took, spent)
    by_hops = _chosen_anew(replace(plan, facts=replace(plan.facts, hops_win=True)), took, spent)
    if by_hops.effort.level.hops:
        return by_hops
    single = _chosen_anew(plan, took, spent)
    late = [Skipped(WRITER_HOPS, TOO_LATE) if one.name == WRITER_HOPS else one for one in single.skipped]
    return replace(single, skipped=tuple(late))


def _chosen_anew(plan: Plan, took: Mapping[str, float], spent: float | None) -> Plan:
    """What is left of a plan."""
    maker = StageMaker(plan.facts, plan.machine, plan.models, plan.speeds, plan.options)
    done = [stage for stage in plan.stages if stage.key in took]
    pace = _pace(maker.stages(plan.effort), took)
    begun = plan.measured + sum(took.values()) if spent is None else spent
    room = None if plan.budget is None else (1 - _LATE) * plan.budget - begun

    def left(effort: Effort) -> list[Stage]:
        stages = [stage for stage in maker.stages(effort) if stage.key not in took]
        return [replace(stage, seconds=stage.seconds * pace) for stage in stages]

    def at(level: Level, share: float, tight: bool) -> Effort:
        effort = effort_at(level, share, plan.facts, bool(plan.machine.gpu), tight)
        return kept_effort(effort, plan.effort, took)

    levels = [level for level in _levels(maker) if _goes_on(level, plan.effort.level, took)]
    effort = None
    for level in levels:
        for tight in (False, True):
            efforts = lambda share, level=level, tight=tight: at(level, share, tight)  # noqa: E731
            effort = effort or _most(efforts, left, room)
    effort = effort or at(levels[-1], 0.0, True)
    stages = (*(replace(stage, seconds=took[stage.key]) for stage in done), *left(effort))
    skipped = _revised_skipped(plan, effort, parts_skipped(maker, effort))
    return replace(plan, effort=effort, stages=stages, skipped=skipped)


def _revised_skipped(plan: Plan, effort: Effort, parts: Sequence[Skipped]) -> tuple[Skipped, ...]:
    """What a revised plan leaves out."""
    lost = plan.effort.level.writer and not effort.level.writer
    there = {"generator": effort.level.writer, WRITER_HOPS: effort.level.hops}
    named = {*SKIPPED_PARTS, *(one.name for one in parts), *(name for name in there if there[name])}
    levels = [one for one in plan.skipped if one.name not in named]
    return (*levels, *([Skipped("generator", TOO_LATE)] if lost else []), *parts)


def _pace(stages: Sequence[Stage], took: Mapping[str, float]) -> float:
    """How much longer stages took than their estimates, those that were left out apart."""
    known = [(stage.seconds, took[stage.key]) for stage in stages if stage.key in took]
    telling = [(guess, seconds) for guess, seconds in known if max(guess, seconds) >= _TELLING]
    telling = [(guess, seconds) for guess, seconds in telling if seconds > _LEFT_OUT * guess]
    estimated = sum(guess for guess, _ in telling)
    if not estimated:
        return 1.0
    least, most = _PACE
    return min(most, max(least, sum(seconds for _, seconds in telling) / estimated))


def _goes_on(level: Level, now: Level, took: Mapping[str, float]) -> bool:
    """Whether a plan of one level can go on at another: what is made is kept."""
    worse = (level.encoder, now.encoder) == ("frozen", "trained") and "biencoder dense" not in took
    if level.encoder != now.encoder and not worse:
        return False
    if "generator hybrid" in took:
        return level.writer and ("tune hybrid" not in took or level.hops == now.hops)
    return True


def _levels(maker: StageMaker) -> list[Level]:
    """The levels that models, measured speeds and data leave, the richest first."""
    levels: tuple[Level, ...] = LEVELS if maker.speeds.encoder is not None else WITHOUT_ENCODER
    writes, hops = maker.speeds.writer is not None, maker.facts.writer_hops
    if maker.facts.few:
        levels = tuple(one for one in levels if one.encoder != "trained" and not one.writer)
    return [one for one in levels if (writes or not one.writer) and (hops or not one.hops)]


def _most(
    at: Callable[[float], Effort], stages: Callable[[Effort], list[Stage]], room: float | None
) -> Effort | None:
    """The greatest effort whose stages fit into the room; None: not even the least does."""
    if room is None or _total(stages(at(1.0))) <= room:
        return at(1.0)
    if _total(stages(at(0.0))) > room:
        return None
    fits, fails = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (fits + fails) / 2
        if _total(stages(at(middle))) <= room:
            fits = middle
        else:
            fails = middle
    return at(fits)


def _total(stages: Sequence[Stage]) -> float:
    return sum(stage.seconds for stage in stages)


def _skipped(
    maker: StageMaker, effort: Effort, at: Callable[[Level, float], Effort], measured: float
) -> tuple[Skipped, ...]:
    """What the plan leaves out, and why."""
    return (*_levels_skipped(maker, effort, at, measured), *parts_skipped(maker, effort))


def _least_budget(maker: StageMaker, effort: Effort, measured: float) -> tuple[float, str]:
    """Seconds of everything, and the budget that they fit: a larger one compares more systems."""
    budget = ""
    while True:
        needs = measured + _total(maker.stages(effort))
        if budget and (maker.options.seconds or 0.0) * (1 - MARGIN) >= needs:
            return needs, budget
        budget = _as_budget(needs / (1 - MARGIN))
        maker = replace(maker, options=replace(maker.options, budget=budget))


def _levels_skipped(
    maker: StageMaker, effort: Effort, at: Callable[[Level, float], Effort], measured: float
) -> list[Skipped]:
    level, models = effort.level, maker.models
    skipped = []
    if level.encoder == "none":
        skipped.append(Skipped("bi-encoder", models.without.get("biencoder", "no time for it")))
    if not level.writer:
        skipped.append(Skipped("generator", models.without.get("generator", NO_TIME)))
    budget = maker.options.budget
    for richer in _levels(maker):
        if richer == level:
            break
        needs, enough = _least_budget(maker, at(richer, 0.0), measured)
        why = f"takes about {duration(needs)} in all at least, at the speeds measured: --budget {enough}"
        skipped = [one for one in skipped if one.name != part_of_level(richer)]
        skipped.append(Skipped(part_of_level(richer), f"{why} instead of {budget}"))
    return skipped


def _as_budget(seconds: float) -> str:
    """A budget as an option, rounded up."""
    if seconds < 90:
        return f"{max(1, int(-(-seconds // 5) * 5))}s"
    minutes = int(-(-seconds // 60))
    return f"{minutes}m" if minutes < 90 else f"{minutes // 60}h{minutes % 60:02d}m"
