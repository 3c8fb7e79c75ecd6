"""Which candidate is kept."""

import random
import re

import pytest

from grls.fitting.choose import Candidate, FitChoice, choose, choose_unmeasured, measured
from grls.tune.search import paired_error


def candidate(
    name: str, values: list[float], cost: float, *members: str, orders: list[float] | None = None
) -> Candidate:
    return Candidate(name, values, [0.5] * len(values) if orders is None else orders, cost, members)


def test_the_cheapest_of_those_that_chance_does_not_tell_apart_is_kept() -> None:
    near = candidate("dense", [1.0, 1.0, 0.5, 0.5], 2)
    worse = candidate("bm25", [0.0, 0.0, 0.0, 0.5], 1)
    better = candidate("hybrid", [1.0, 1.0, 0.5, 1.0], 9, "dense")
    assert paired_error(better.values, near.values) == pytest.approx(0.125)
    choice = choose([worse, near, better])
    assert (choice.chosen.name, choice.best.name) == ("dense", "hybrid")
    told = "recall 75.0 on 4 dev queries (95 % interval 35 to 90), where differences below 48 points may"
    assert choice.why == f"within chance of hybrid (87.5), and cheaper: {told} be chance"  # one of BM25
    assert choose([worse, near, better], prefer="quality").chosen.name == "hybrid"


def test_speed_takes_what_is_within_two_standard_errors() -> None:
    cheap = candidate("bm25", [1.0, 0.0, 1.0, 0.0] * 5, 1)
    dear = candidate("dense", [1.0, 0.5, 1.0, 0.0] * 5, 20)
    gap, error = dear.value - cheap.value, paired_error(dear.values, cheap.values)
    assert error < gap < 3 * error
    slow = dear._replace(values=[*dear.values[:-8], *cheap.values[-8:]])
    assert 1 < (slow.value - cheap.value) / paired_error(slow.values, cheap.values) < 2
    assert choose([cheap, slow]).chosen.name == "dense"
    assert choose([cheap, slow], prefer="speed").chosen.name == "bm25"


def test_of_two_that_cost_nearly_the_same_the_better_is_kept() -> None:
    """Hops were kept, and not their fusion with BM25 that was better by 1.3 points and cost 5 % more."""
    hops = candidate("dense-hops", [1.0, 1.0, 0.5, 0.5], 228)
    fused = candidate("bm25-hops + dense-hops", [1.0, 1.0, 0.5, 1.0], 240, "dense-hops")
    assert choose([hops, fused]).chosen.name == "bm25-hops + dense-hops"
    assert choose([hops, fused._replace(cost=457)]).chosen.name == "dense-hops"
    assert choose([hops, fused], prefer="speed").chosen.name == "dense-hops"


def test_a_clear_winner_is_kept_whatever_it_costs() -> None:
    best = candidate("hybrid", [1.0] * 20 + [0.0], 99)
    other = candidate("bm25", [0.0] * 20 + [0.1], 1)
    assert choose([other, best]).chosen.name == "hybrid"
    why = choose([best, other], "R@5").why
    told = (
        "R@5 95.2 on 21 dev queries (95 % interval 77 to 99), where differences below 10 points may be chance"
    )
    assert why == f"the best: {told}"


def test_where_recall_is_level_the_order_of_passages_decides() -> None:
    """Recall was saturated, and BM25 was kept though a fusion in the same table ordered clearly better."""
    words = candidate("bm25", [1.0] * 30, 1, orders=[0.8, 0.7] * 15)
    fused = candidate("bm25 + base", [1.0] * 30, 5, "bm25", orders=[0.9, 0.8] * 15)
    choice = choose([words, fused])
    assert (choice.chosen.name, choice.best.name) == ("bm25 + base", "bm25 + base")
    dear = candidate("hybrid", [1.0] * 30, 100, orders=[0.9, 0.81, 0.9, 0.79] * 7 + [0.9, 0.8])
    assert choose([words, fused, dear]).chosen.name == "bm25 + base"  # 20 times the cost within chance


def test_the_reason_says_what_was_compared() -> None:
    """One candidate of one, and the cheapest of some that are level, was "the best"."""
    one, other = candidate("bm25", [1.0], 1), candidate("base", [1.0], 2)
    assert choose([one]).why == "the only candidate: recall 100.0 on 1 dev query (95 % interval 20 to 100)"
    told = "recall 100.0 on 1 dev query (95 % interval 20 to 100), where differences below 100 points may"
    assert choose([other, one]).why == f"level with base, and the cheapest: {told} be chance"


def test_the_interval_holds_what_all_questions_say() -> None:
    draw, values = random.Random(0), [0.0, 0.5, 1.0, 1.0]
    held = 0
    for _ in range(500):
        sample = candidate("bm25", draw.choices(values, k=30), 1)
        low, high = map(int, re.findall(r"interval (\d+) to (\d+)", measured(sample, "R@5"))[0])
        held += low <= 62.5 <= high
    assert 465 < held < 500


def test_without_labelled_questions_the_fusion_is_kept() -> None:
    words, base = candidate("bm25", [1.0] * 9, 1), candidate("base", [0.0] * 9, 2)
    assert choose_unmeasured([words, base]).chosen.name == "bm25"
    fused = candidate("bm25 + base", [0.5] * 9, 3, "bm25", "base")
    assert choose_unmeasured([words, base, fused]).chosen.name == "bm25 + base"
    hops = candidate("bm25-hops", [0.0] * 9, 3, "bm25")
    assert choose_unmeasured([words, hops]).chosen.name == "bm25-hops"
    linked = candidate("bm25-hops + base-hops", [0.0] * 9, 9, "bm25-hops", "base-hops")
    assert choose_unmeasured([words, hops, base, fused, linked]).chosen.name == linked.name


def test_what_written_questions_taught_is_kept_where_it_wins_on_others_and_loses_no_masked_names() -> None:
    words = candidate("bm25", [1.0] * 39 + [0.0], 1)
    fused = candidate("bm25 + base", [1.0] * 20 + [0.0] * 20, 1, "bm25", "base")
    taught = candidate("bm25 + dense", [1.0] * 30 + [0.0] * 10, 1, "bm25", "dense")

    def kept(one: Candidate, masked: bool = True) -> FitChoice:
        return choose_unmeasured([words, fused, one], "R@5", ["dense"], lambda _: masked)

    choice = kept(taught)
    assert choice.chosen == taught
    assert choice.why == (
        "trained: R@5 75.0 on 40 written questions (95 % interval 59 to 86), where bm25 + base has 50.0"
    )
    assert kept(taught, masked=False).chosen.name == fused.name
    for won, lost, wins in ((6, 3, False), (1, 0, False), (7, 3, True), (2, 0, True)):  # by one error
        values = [1.0] * (20 - lost) + [0.0] * (20 + lost - won) + [1.0] * won
        assert (kept(taught._replace(values=values)).chosen.name == taught.name) == wins
    few = [one._replace(values=one.values[9:38]) for one in (fused, taught)]
    assert choose_unmeasured(few, "R@5", ["dense"]).chosen.name == fused.name


def test_candidates_are_compared_on_the_queries_that_all_have_ranked() -> None:
    slow = candidate("hybrid", [1.0] * 30, 9)
    quick = candidate("bm25", [1.0] * 30 + [0.0] * 30, 1)
    choice = choose([slow, quick])
    assert choice.chosen.name == "bm25"
    assert len(choice.chosen.values) == 30


def test_what_is_kept_is_never_beaten_by_a_member_nor_by_more_than_chance() -> None:
    draw = random.Random(0)
    for _ in range(300):
        count = draw.randint(1, 12)
        names = ["bm25", "base", "dense-hops", "hybrid", "bm25 + base", "bm25 + hybrid"]
        candidates = [
            Candidate(
                name,
                [draw.choice((0.0, 0.5, 1.0)) for _ in range(count)],
                [draw.random() for _ in range(count)],
                draw.random(),
                tuple(name.split(" + ")) if " + " in name else (),
            )
            for name in names
        ]
        choice = choose(candidates)
        by_name = {one.name: one for one in candidates}
        assert all(by_name[name].value <= choice.chosen.value + 1e-9 for name in choice.chosen.members)
        best = max(candidates, key=lambda one: one.value)
        assert best.value - choice.chosen.value <= paired_error(best.values, choice.chosen.values) + 1e-9
