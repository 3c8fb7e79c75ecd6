"""Which system is kept."""

import random

import pytest

from grls.fitting.choose import Candidate, choose_system, standard_error
from grls.fitting.systems import FittedSystem, fusions, single_systems


def candidate(name: str, recalls: list[float], cost: float, *members: str, order: float = 0.5) -> Candidate:
    return Candidate(name, recalls, order, cost, members)


def test_the_cheapest_of_those_that_chance_does_not_tell_apart_is_kept() -> None:
    best = candidate("hybrid", [1.0, 1.0, 0.0, 1.0], 9, "dense")
    near = candidate("dense", [1.0, 1.0, 0.5, 0.5], 2)
    worse = candidate("bm25", [0.0, 0.0, 0.0, 0.5], 1)
    kept = choose_system([worse, near, best])
    assert (kept.name, kept.best) == ("dense", "dense")  # level: the cheaper one is the best
    better = candidate("hybrid", [1.0, 1.0, 0.5, 1.0], 9, "dense")
    assert standard_error(better, near) == pytest.approx(0.125)
    kept = choose_system([worse, near, better])
    assert (kept.name, kept.best) == ("dense", "hybrid")
    assert kept.why == (
        "recall 75.0 on 4 dev queries, within one standard error of hybrid (87.5), and simpler"
    )


def test_a_clear_winner_is_kept_whatever_it_costs() -> None:
    best = candidate("hybrid", [1.0] * 20 + [0.0], 99)
    other = candidate("bm25", [0.0] * 20 + [0.1], 1)
    assert choose_system([other, best]).name == "hybrid"
    assert choose_system([best]).why == "the best: recall 95.2 on 21 dev queries"


def test_what_the_choice_loses_in_other_measures_is_said() -> None:
    """Of 24 dev queries two were found whole by hops, and all others were ranked worse."""
    simple = Candidate(
        "bm25", [0.5] * 2 + [1.0] * 22, 0.874, 1, (), {"nDCG@10": 0.874, "RR": 0.972, "R@20": 1.0}
    )
    hops = Candidate(
        "bm25-hops", [1.0] * 24, 0.783, 4, ("bm25",), {"nDCG@10": 0.783, "RR": 0.792, "R@20": 1.0}
    )
    kept = choose_system([simple, hops])
    assert kept.name == "bm25-hops"
    assert kept.why == (
        "the best: recall 100.0 on 24 dev queries; but bm25 ranks better there: nDCG@10 78.3, not 87.4; "
        "RR 79.2, not 97.2"
    )
    assert "but" not in choose_system([simple, hops._replace(measures=simple.measures)]).why


def test_of_level_systems_the_cheapest_is_kept_and_order_decides_which_is_best() -> None:
    one, other = candidate("a", [0.5, 0.5], 1, order=0.2), candidate("b", [0.5, 0.5], 2, order=0.9)
    kept = choose_system([one, other])
    assert (kept.name, kept.best) == ("a", "b")


def test_what_is_near_the_best_but_worse_than_its_member_is_not_kept() -> None:
    """The member differs from the best too surely to be near it, though it finds more than the fusion."""
    best = [1.0] * 10
    member = [0.91] * 10  # a sure difference: no standard error
    fused = [1.0] * 9 + [0.0]  # a wide one
    candidates = [
        candidate("best", best, 9),
        candidate("member", member, 3),
        candidate("fused", fused, 5, "member", "x"),
    ]
    assert candidates[2].recall < candidates[1].recall
    assert choose_system(candidates).name == "best"
    alone = candidate("fused", fused, 5)
    assert choose_system([candidates[0], candidates[1], alone]).name == "fused"


def test_the_kept_system_is_never_worse_than_a_member_of_it() -> None:
    draw = random.Random(0)
    for _ in range(300):
        count = draw.randint(1, 12)
        singles = single_systems(["bm25", "dense", "dense-hops", "generator", "hybrid"])
        systems = [*singles, *fusions([one.name for one in singles], [])]
        values = {one.name: [draw.choice((0.0, 0.5, 1.0)) for _ in range(count)] for one in systems}
        candidates = [
            Candidate(one.name, values[one.name], draw.random(), one.cost, one.members) for one in systems
        ]
        kept = next(one for one in candidates if one.name == choose_system(candidates).name)
        by_name = {one.name: one for one in candidates}
        assert all(by_name[name].recall <= kept.recall + 1e-9 for name in kept.members)


def test_fusions_are_pairs_and_all_of_them_and_cost_more_than_their_members() -> None:
    made = fusions(["bm25", "dense", "dense-hops", "hybrid"], ["dense"])
    assert [one.parts for one in made] == [
        ("bm25", "dense-hops"), ("bm25", "hybrid"), ("dense-hops", "hybrid"), ("bm25", "dense-hops", "hybrid")
    ]  # fmt: skip
    costs = {one.name: one.cost for one in single_systems(["bm25", "dense", "dense-hops", "hybrid"])}
    assert all(one.cost > max(costs[part] for part in one.parts) for one in made)
    assert made[0].folder == "fusion-bm25-dense-hops"
    assert fusions(["bm25", "dense"], []) == [FittedSystem("bm25 + dense", ("bm25", "dense"))]


def test_a_system_names_the_models_that_it_searches_with() -> None:
    """A card names no model that the kept retriever does without."""
    models = {name: FittedSystem(name, tuple(name.split(" + "))).models for name in (
        "bm25", "dense", "dense-hops", "bm25 + dense", "hybrid", "bm25 + hybrid", "generator",
    )}  # fmt: skip
    both = ("biencoder", "generator")
    assert list(models.values()) == [
        (),
        ("biencoder",),
        ("biencoder",),
        ("biencoder",),
        both,
        both,
        ("generator",),
    ]
