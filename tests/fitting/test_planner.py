"""What is chosen for data, machine and time, with speeds that are given."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from small_data import write_small

from grls.errors import ConfigError
from grls.fitting.effort import LEVELS, effort_at, whole_steps
from grls.fitting.facts import DataFacts, SplitFacts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModel, BaseModels
from grls.fitting.options import FitOptions
from grls.fitting.plan import Plan
from grls.fitting.planner import MARGIN, chosen_plan, make_plan, models_that_fit
from grls.fitting.speeds import EncoderSpeeds, Speeds, WriterSpeeds
from grls.fitting.stage_times import StageTimes

CPU = Machine(2, True, 16.0, "", 0.0, 60.0)
MODELS = BaseModels(
    BaseModel("all-MiniLM-L6-v2", "package"), BaseModel("SmolLM2-135M-Instruct", "package"), {}
)
ENCODER = EncoderSpeeds(load=2.0, step=5.0, passage=0.025, query=0.02)
WRITER = WriterSpeeds(load=12.0, step=4.5, search=0.33, rescored=0.02, indexed=0.002)
SPEEDS = Speeds(0.0003, 0.002, ENCODER, WRITER)
"""Of two cores."""


def split(queries: int, gold: float = 2.4, most: int = 4) -> SplitFacts:
    several = min(1.0, gold - 1)
    return SplitFacts(queries, gold, most, several, several, 1.0, 13.0)


def facts(gold: float = 2.4, words: float = 66.0, passages: int = 3112, **changed: Any) -> DataFacts:
    splits = {name: split(n, gold) for name, n in (("train", 280), ("dev", 60), ("test", 160))}
    usual = DataFacts(passages, words, 143, 1.0, "en", "en", splits, "train", "dev", "test", 0.97)
    return replace(usual, **changed)


def planned(budget: str | None, data: DataFacts | None = None, **changed: Any) -> Plan:
    given: dict[str, Any] = {"machine": CPU, "models": MODELS, "speeds": SPEEDS} | changed
    options = given.pop("options", FitOptions(budget=budget))
    return chosen_plan(data or facts(), given["machine"], given["models"], given["speeds"], options)


def keys(plan: Plan) -> list[str]:
    return [stage.key for stage in plan.stages]


def options_of(plan: Plan, key: str) -> dict[str, Any]:
    return dict(next(stage.options for stage in plan.stages if stage.key == key))


def skipped(plan: Plan) -> dict[str, str]:
    return {one.name: one.why for one in plan.skipped}


def test_without_a_limit_the_whole_recipe_is_done() -> None:
    plan = planned(None)
    assert keys(plan) == [
        "tune bm25-hops",
        "biencoder dense",
        "dense dense",
        "tune dense-hops",
        "generator hybrid",
        "index hybrid",
        "hybrid hybrid",
        "tune hybrid",
        "compare",
        "fusion fusion",
        "report",
    ]
    assert plan.systems == ("bm25", "bm25-hops", "dense", "dense-hops", "generator", "hybrid")
    members = ["bm25", "bm25-hops", "dense", "dense-hops", "hybrid"]
    assert options_of(plan, "fusion fusion")["members"] == members
    assert options_of(plan, "biencoder dense")["fit.max_steps"] == 90
    generator = options_of(plan, "generator hybrid")
    assert generator["trainer.max_epochs"] * generator["trainer.limit_train_batches"] == 175
    assert generator["data.teacher"] == "dense"
    assert options_of(plan, "tune hybrid")["hops.chains"] == 5
    assert options_of(plan, "compare")["test_limit"] is None
    assert set(skipped(plan)) == {"rescoring"}


@pytest.mark.parametrize("budget", ["70s", "4m", "10m", "25m", "45m", "60m", "90m", "3h", "100h"])
def test_a_plan_fits_its_budget(budget: str) -> None:
    plan = planned(budget)
    assert plan.budget is not None
    assert plan.seconds <= (1 - MARGIN) * plan.budget


def test_a_longer_budget_never_does_less() -> None:
    richness = []
    for minutes in range(3, 150, 3):
        plan = planned(f"{minutes}m")
        effort = plan.effort
        amounts = (
            effort.encoder_steps,
            effort.writer_steps,
            effort.dev,
            effort.test,
            effort.chains,
            effort.hops,
        )
        richness.append((-LEVELS.index(effort.level), amounts))
    for (before, less), (after, more) in pairwise(richness):
        assert after >= before
        if after == before:
            assert all(one <= other for one, other in zip(less, more, strict=True))
    assert {level for level, _ in richness} >= {0, -2, -3}


def test_what_goes_first_when_time_is_short() -> None:
    assert planned("60m").systems == ("bm25", "bm25-hops", "dense", "dense-hops", "generator", "hybrid")
    short = planned("15m")
    assert short.systems == ("bm25", "bm25-hops", "dense", "dense-hops")
    assert "generator" in skipped(short)
    assert skipped(short)["generator"].endswith("m instead of 15m")
    frozen = planned("3m")
    assert frozen.systems == ("bm25", "dense")
    assert "biencoder dense" not in keys(frozen)
    assert options_of(frozen, "dense dense")["model"] == "all-MiniLM-L6-v2"
    bm25 = planned("70s")
    assert keys(bm25) == ["compare", "report"]
    assert bm25.systems == ("bm25",)


def test_a_budget_that_is_named_as_enough_is_enough() -> None:
    why = skipped(planned("15m"))["generator"]
    enough = why.partition("--budget ")[2].partition(" ")[0]
    assert planned(enough).effort.level.writer


def test_a_named_budget_is_enough_also_with_the_systems_that_it_adds() -> None:
    """A larger budget compares the generator alone, too, which the advice once forgot."""
    data = facts(splits={name: split(n) for name, n in (("train", 280), ("dev", 30), ("test", 100))})
    for search in (0.25, 0.35, 0.43):
        speeds = replace(SPEEDS, writer=replace(WRITER, search=search, step=9.0))
        why = skipped(planned("8m", data, speeds=speeds))["generator"]
        assert "about" in why
        enough = why.partition("--budget ")[2].partition(" ")[0]
        assert planned(enough, data, speeds=speeds).effort.level.writer


def test_times_are_named_estimates_and_a_busy_machine_is_said() -> None:
    assert "times are estimates, from a few steps of each part\n" in planned("15m").text()
    busy = planned("15m", machine=replace(CPU, load=9.2)).text()
    assert "other work takes the machine (load 9 on 2 cores), without it less" in busy


def test_a_budget_for_nothing_says_what_fits() -> None:
    with pytest.raises(
        ConfigError, match=r"--budget 5s is too short for anything: BM25 over 3,112 passages takes"
    ) as caught:
        planned("5s")
    enough = str(caught.value).partition("Give --budget ")[2].partition(" ")[0]
    assert planned(enough).systems == ("bm25",)


def test_a_budget_that_measuring_took_says_so() -> None:
    options = FitOptions(budget="5m")
    with pytest.raises(ConfigError, match=r"to measure the models took 5 min, and BM25 over") as caught:
        chosen_plan(facts(), CPU, MODELS, SPEEDS, options, measured=290.0)
    said = str(caught.value)
    assert "or more, call again when the machine is less busy, or leave models out: --generator none" in said
    enough = said.partition("Give --budget ")[2].partition(" ")[0]
    again = FitOptions(budget=enough)
    assert chosen_plan(facts(), CPU, MODELS, SPEEDS, again, measured=290.0).systems == ("bm25",)


def test_a_budget_for_nothing_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> tuple[Speeds, float]:
        raise AssertionError("measured")

    monkeypatch.setattr("grls.fitting.planner.known_speeds", measure)
    data = str(write_small(tmp_path / "data"))
    options = FitOptions(budget="5s", biencoder="none", generator="none", device="cpu")
    with pytest.raises(ConfigError, match="--budget 5s is too short for anything: BM25 over 10 passages"):
        make_plan(data, tmp_path / "run", options)


@pytest.mark.parametrize("there", [False, True])
def test_speeds_that_lead_to_no_plan_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """They were kept, so that the same command failed for ever, on an idle machine as well."""
    taken: list[float] = []

    def measured(*_: object) -> Speeds:
        taken.append(0.0)
        return Speeds(1e6, 1e6) if len(taken) == 1 else Speeds(1e-4, 1e-4)

    monkeypatch.setattr("grls.fitting.timing.measured_speeds", measured)
    data, output = str(write_small(tmp_path / "data")), tmp_path / "run"
    if there:
        output.mkdir()
    options = FitOptions(budget="30m", biencoder="none", generator="none", device="cpu")
    monkeypatch.setattr("grls.fitting.timing._AGAIN", 0.0)
    with pytest.raises(ConfigError, match="is too short for anything"):
        make_plan(data, output, options)
    assert output.exists() == there
    assert not there or list(output.iterdir()) == []
    assert make_plan(data, output, options).systems[0] == "bm25"
    assert len(taken) == 2


def test_one_gold_passage_a_query_asks_for_no_hops() -> None:
    plan = planned(None, facts(gold=1.0))
    assert plan.systems == ("bm25", "dense", "generator", "hybrid")
    assert next(s for s in plan.stages if s.name == "generator").recipes == ("chains", "single-step/chains")
    assert options_of(plan, "generator hybrid")["data.multistep"] is False
    assert "hops.steps" not in options_of(plan, "tune hybrid")
    assert skipped(plan)["hops"] == "most queries have one gold passage"


def test_short_facts_are_rescored() -> None:
    plan = planned(None, facts(words=10.0))
    assert options_of(plan, "generator hybrid")["data.rescore.retrievers"] == ["dense", "bm25"]
    assert options_of(plan, "tune hybrid")["grid.rescore_passages"] == 20
    assert "hops.steps" not in options_of(plan, "tune hybrid")
    assert options_of(plan, "generator hybrid")["data.multistep"] is False
    assert "dense-hops" in plan.systems
    assert "rescoring" not in skipped(plan)


def test_short_passages_are_no_proof_that_hops_find_nothing_more() -> None:
    """The plan once said of data where hops found far more that one search finds as much."""
    why = skipped(planned(None, facts(words=10.0)))["hops of the generator"]
    assert why.startswith("to save time, as passages are short (10 words): on the sets tried")


def test_without_test_queries_dev_is_reported() -> None:
    data = facts(test="dev")
    plan = planned(None, replace(data, splits={k: v for k, v in data.splits.items() if k != "test"}))
    assert "test" in skipped(plan)
    assert "test" not in next(stage.what for stage in plan.stages if stage.name == "compare")


def test_without_models_bm25_is_left() -> None:
    none = BaseModels(None, None, {"biencoder": "--biencoder none", "generator": "--generator none"})
    plan = planned("10m", models=none, speeds=Speeds(0.0003, 0.002))
    assert plan.systems == ("bm25", "bm25-hops")
    assert skipped(plan) == {"bi-encoder": "--biencoder none", "generator": "--generator none"}


def test_a_generator_without_a_bi_encoder_has_bm25_alone_as_its_prior() -> None:
    alone = replace(MODELS, biencoder=None, without={"biencoder": "--biencoder none"})
    plan = planned(None, models=alone, speeds=replace(SPEEDS, encoder=None))
    assert plan.systems == ("bm25", "bm25-hops", "generator", "hybrid")
    assert options_of(plan, "hybrid hybrid")["priors"] == ["bm25"]
    assert "data.teacher" not in options_of(plan, "generator hybrid")


def test_texts_are_no_longer_than_the_model_can_read() -> None:
    few = replace(MODELS, biencoder=BaseModel("tiny", "folder", positions=128))
    assert options_of(planned(None), "biencoder dense")["max_tokens"] == 192
    assert options_of(planned(None, models=few), "biencoder dense")["max_tokens"] == 128


def test_little_memory_computes_activations_anew() -> None:
    small = planned(None, machine=replace(CPU, memory=4.0))
    assert options_of(small, "biencoder dense")["fit.gradient_checkpointing"] is True
    assert options_of(small, "generator hybrid")["model.gradient_checkpointing"] is True
    assert small.seconds > planned(None).seconds


def test_a_large_index_is_searched_with_few_queries_at_once() -> None:
    assert options_of(planned(None), "tune hybrid")["search.batch_size"] == 32
    large = planned(None, facts(passages=200_000))
    assert options_of(large, "tune hybrid")["search.batch_size"] == 10
    assert options_of(large, "hybrid hybrid")["search.batch_size"] == 10


def test_a_generator_that_the_machine_cannot_hold_is_left_out() -> None:
    assert models_that_fit(MODELS, CPU, facts()) == MODELS
    full = models_that_fit(MODELS, replace(CPU, disk=2.0), facts())
    assert full.generator is None
    assert full.without["generator"].startswith("2.0 GiB of disk are free")
    large = models_that_fit(MODELS, CPU, facts(passages=5_000_000))
    assert large.without["generator"] == ("the index of all spans takes 31 GiB, and 16 of memory are free")
    assert large.biencoder == MODELS.biencoder


def test_a_gpu_does_more_steps_of_a_large_set() -> None:
    data = facts()
    many = replace(data, splits={**data.splits, "train": split(50_000)})
    assert whole_steps(many, gpu=False) == (300, 500)
    assert whole_steps(many, gpu=True) == (3000, 5000)


def test_slower_machines_do_less() -> None:
    slow = Speeds(0.003, 0.02, EncoderSpeeds(*(4 * one for one in vars(ENCODER).values())), None)
    assert planned("20m", speeds=slow).effort.level.encoder == "frozen"


def test_choices_of_the_user_reach_the_stages() -> None:
    chosen = FitOptions(k=7, seed=3, device="cpu", precision="float32")
    plan = planned(None, options=chosen)
    encoder, generator = options_of(plan, "biencoder dense"), options_of(plan, "generator hybrid")
    assert (encoder["fit.seed"], encoder["fit.k"], encoder["fit.device"]) == (3, 7, "cpu")
    assert encoder["fit.precision"] == "float32"
    assert (generator["seed_everything"], generator["recall.k"]) == (3, 7)
    assert generator["trainer.precision"] == "32-true"
    assert generator["trainer.accelerator"] == "cpu"
    assert options_of(plan, "tune hybrid")["precision"] == "float32"


def test_the_text_says_everything() -> None:
    text = planned("20m").text()
    for part in (
        "3,112 passages",
        "no GPU, 2 cores",
        "all-MiniLM-L6-v2 (package)",
        "biencoder dense",
        "of 20 min",
    ):
        assert part in text
    assert "\n  biencoder dense " in text
    assert "Skipped\n  hops of the generator: takes about" in text


def test_the_least_effort_is_no_more_than_the_whole() -> None:
    for level in LEVELS:
        least, whole = (effort_at(level, share, facts(), False) for share in (0.0, 1.0))
        for name, value in vars(least).items():
            if isinstance(value, int):
                assert value <= getattr(whole, name), name


def test_a_handful_of_queries_trains_nothing() -> None:
    data = facts()
    few = replace(data, splits={**data.splits, data.train: split(7)})
    left = models_that_fit(MODELS, CPU, few)
    assert left.generator is None
    plan = planned(None, few, models=left)
    assert "biencoder dense" not in keys(plan)
    assert "dense dense" in keys(plan)
    why = "7 training queries are too few to learn from: give 8 or more"
    assert skipped(plan)["training of the bi-encoder"] == skipped(plan)["generator"] == why
    enough = replace(data, splits={**data.splits, data.train: split(8)})
    assert "biencoder dense" in keys(planned(None, enough))


def halved() -> DataFacts:
    splits = {"train": split(280), "tune": split(150), "dev": split(151), "test": split(160)}
    return facts(splits=splits, dev="tune")


def test_where_a_half_of_dev_tunes_the_comparison_is_of_both_halves() -> None:
    """Its estimate and its line left the half that chooses out."""
    whole = next(stage for stage in planned(None, halved()).stages if stage.name == "compare")
    assert whole.what == "rank 150 tune, 151 dev and 160 test queries with every system"
    alone = facts(splits={"train": split(280), "dev": split(150), "test": split(151 + 160)})
    same = next(stage for stage in planned(None, alone).stages if stage.name == "compare")
    assert whole.seconds == same.seconds
    part = next(stage for stage in planned("30m", halved()).stages if stage.name == "compare")
    dev, test = part.options["dev_limit"], part.options["test_limit"]
    assert dev < 150
    assert part.what == f"rank {dev} tune, {dev} dev and {test} test queries with every system"


def test_a_cheap_system_is_cheap_over_both_halves() -> None:
    effort = planned(None, halved()).effort
    one = StageTimes(halved(), CPU, SPEEDS, FitOptions(budget="1000h"))
    seconds = (150 + 151 + 160) * one._query("bm25-hops", effort)
    for budget, cheap in ((0.98 * 20 * seconds, False), (1.02 * 20 * seconds, True)):
        assert replace(one, options=FitOptions(budget=f"{budget}s")).is_cheap("bm25-hops", effort) == cheap
