"""What a run chooses anew for the time that is left, and for what it has measured."""

import pytest
from test_planner import facts, keys, options_of, planned, skipped

from grls.fitting.plan import Plan
from grls.fitting.planner import revised_plan


def encoder_took(plan: Plan, times: float) -> dict[str, float]:
    """The stages until the bi-encoder is trained, which takes so many times its estimate."""
    words, encoder = plan.stages[:2]
    assert (words.key, encoder.key) == ("tune bm25-hops", "biencoder dense")
    return {words.key: words.seconds, encoder.key: times * encoder.seconds}


def test_a_late_run_does_less_of_what_is_left() -> None:
    plan = planned("60m")
    took = {stage.key: 1.5 * stage.seconds for stage in plan.stages[:4]}
    revised = revised_plan(plan, took)
    assert keys(revised)[:4] == keys(plan)[:4]
    assert revised.effort.encoder_steps == plan.effort.encoder_steps
    assert revised.effort.dev == plan.effort.dev
    assert revised.effort.writer_steps < plan.effort.writer_steps or revised.effort.level != plan.effort.level
    assert revised.seconds <= 3600


def test_an_early_run_does_more() -> None:
    plan = planned("60m")
    took = {stage.key: 0.6 * stage.seconds for stage in plan.stages[:4]}
    revised = revised_plan(plan, took)
    assert revised.effort.writer_steps > plan.effort.writer_steps
    assert revised.seconds <= 3600


def test_a_generator_that_is_trained_is_compared_even_where_time_is_short() -> None:
    plan = planned("60m")
    took = {stage.key: 1.8 * stage.seconds for stage in plan.stages[:6]}
    revised = revised_plan(plan, took)
    assert "hybrid" in revised.systems
    assert revised.effort.test < plan.effort.test


def test_the_pace_of_a_run_lasts_over_several_revisions() -> None:
    plan = planned("60m")
    first = revised_plan(plan, encoder_took(plan, 2))
    took = {stage.key: stage.seconds for stage in first.stages[:3]}
    second = revised_plan(first, took)
    assert [stage.key for stage in second.stages] == [stage.key for stage in first.stages]
    for one, other in zip(first.stages, second.stages, strict=True):
        assert other.seconds == pytest.approx(one.seconds, rel=0.05)


def test_a_stage_that_was_left_out_says_nothing_of_the_pace() -> None:
    plan = planned("60m")
    took = {stage.key: stage.seconds for stage in plan.stages[:4]}
    revised = revised_plan(plan, {**took, "generator hybrid": 0.01})
    compare = {stage.key: stage.seconds for stage in revised.stages}["report"]
    assert compare == pytest.approx(plan.stages[-1].seconds)


def test_a_run_that_is_much_too_early_may_become_richer() -> None:
    plan = planned("15m")
    assert not plan.effort.level.writer
    revised = revised_plan(plan, encoder_took(plan, 0.25))
    assert revised.effort.level.writer
    assert "generator" not in skipped(revised)


def test_a_run_that_is_much_too_late_goes_on_without_a_generator() -> None:
    plan = planned("25m")
    revised = revised_plan(plan, encoder_took(plan, 4))
    assert revised.systems == ("bm25", "bm25-hops", "dense", "dense-hops")
    assert skipped(revised)["generator"] == "too little time was left for it"


def test_a_run_without_a_limit_is_not_revised() -> None:
    plan = planned(None)
    assert revised_plan(plan, {"biencoder dense": 1e6}) is plan


def encoder_tuned(plan: Plan) -> dict[str, float]:
    return {stage.key: stage.seconds for stage in plan.stages[:4]}


@pytest.mark.parametrize("budget", [None, "3h"])
def test_where_the_bi_encoder_finds_more_by_hops_the_generator_takes_them(budget: str | None) -> None:
    plan = planned(budget, facts(words=10.0))
    took = encoder_tuned(plan)
    assert list(took)[-1] == "tune dense-hops"
    revised = revised_plan(plan, took, hops_win=True)
    assert options_of(revised, "generator hybrid")["data.multistep"] is True
    assert options_of(revised, "generator hybrid")["data.rescore.retrievers"] == ["dense", "bm25"]
    assert options_of(revised, "tune hybrid")["hops.steps"] == "ranked"
    assert "hops of the generator" not in skipped(revised)
    assert revised.seconds <= (revised.budget or float("inf"))


def test_where_there_is_no_time_for_hops_the_generator_does_without() -> None:
    plan = planned("3h", facts(words=10.0))
    took = encoder_tuned(plan)
    least = next(
        spent for spent in range(0, 10800, 60) if not revised_plan(plan, took, spent, True).effort.level.hops
    )
    late = revised_plan(plan, took, least, True)
    assert late.effort.level.writer
    assert options_of(late, "generator hybrid")["data.multistep"] is False
    assert skipped(late)["hops of the generator"] == "too little time was left for it"
