"""Where a ranking is cut: against every outcome there is, and after rankings whose end is known."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grls.data.types import Hit
from grls.errors import ConfigError
from grls.retrieve.fusion.cut import SetSize, Size, best_size

probabilities = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6)
lacking = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3).filter(lambda some: sum(some) > 0.1)


def naive(k: int, chances: list[float], missing: np.ndarray) -> float:
    """Expected F1 of the first k, over every outcome."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=len(chances)):
        likely = math.prod(p if right else 1 - p for p, right in zip(chances, outcome, strict=True))
        for lost, share in enumerate(missing):
            total += likely * share * 2 * sum(outcome[:k]) / (k + sum(outcome) + lost)
    return total


@given(probabilities, lacking)
def test_the_best_size_is_that_of_all_outcomes(chances: list[float], lost: list[float]) -> None:
    missing = np.array(lost) / sum(lost)
    every = [naive(k, chances, missing) for k in range(1, len(chances) + 1)]
    found = best_size(np.array(chances), missing)
    assert found.expected_f1 == pytest.approx(max(every))
    assert every[found.k - 1] == pytest.approx(max(every))


def test_hand_known_sizes() -> None:
    none = np.array([1.0])
    size = best_size(np.array([1.0, 1.0, 0.0, 0.0]), none)
    assert (size.k, size.expected_f1) == (2, pytest.approx(1.0))
    size = best_size(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]))  # two more are not in the ranking
    assert (size.k, size.expected_f1) == (2, pytest.approx(2 / 3))
    assert best_size(np.array([]), none) == Size(0, 0.0)
    assert best_size(np.array([0.0, 0.0]), none).k == 1  # a set without a passage has no F1


def ranking(right: int, length: int = 8) -> list[Hit]:
    """Gold passages g0, g1, … with scores near 5, then others near 1."""
    scores = [5.0 - 0.1 * n if n < right else 1.0 - 0.1 * n for n in range(length)]
    return [Hit(f"g{n}" if n < right else f"x{n}", score) for n, score in enumerate(scores)]


def test_a_ranking_ends_where_development_rankings_end() -> None:
    dev = [ranking(right) for right in (1, 2, 3, 4, 5) * 4]
    gold = [[hit.id for hit in hits if hit.id.startswith("g")] for hits in dev]
    sizes = SetSize.fit(dev, gold)
    for right in range(1, 6):
        chain = sizes.cut(ranking(right))
        assert [hit.id for hit in chain.hits] == [f"g{n}" for n in range(right)]
        assert chain.done
        assert all(hit.score < 0 for hit in chain.hits)
        assert math.exp(chain.score) > 0.8
    assert len(SetSize.fit(dev, [[*own, "elsewhere"] for own in gold]).cut(ranking(3)).hits) == 3


def test_the_order_stays_and_an_empty_ranking_is_an_empty_chain() -> None:
    sizes = SetSize.fit([ranking(2), ranking(3)], [["g0", "g1"], ["x3", "g2"]])
    for right in range(1, 6):
        hits = ranking(right)
        kept = sizes.cut(hits).hits
        assert [hit.id for hit in kept] == [hit.id for hit in hits[: len(kept)]]
    chain = sizes.cut([])
    assert chain.hits == ()
    assert math.isfinite(chain.score)
    assert len(sizes.cut([Hit("alone", 0.0)]).hits) == 1


def test_development_rankings_may_be_empty() -> None:
    sizes = SetSize.fit([ranking(2), [], ranking(3)], [["g0", "g1"], ["g0"], ["g0", "g1", "g2"]])
    assert sizes.missing.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert [hit.id for hit in sizes.cut(ranking(2)).hits] == ["g0", "g1"]


def test_a_gold_passage_that_is_listed_twice_is_one() -> None:
    twice = [Hit("g0", 3.0), Hit("g0", 2.0), Hit("x0", 1.0)]
    assert SetSize.fit([twice], [["g0"]]).missing.tolist() == [1.0]


def test_scores_that_cannot_be_weighed_are_refused() -> None:
    far = [Hit("g0", 1e308), Hit("x0", -1e308)]
    with pytest.raises(ConfigError, match=r"1e\+308.*Divide them"):
        SetSize.fit([far, ranking(2)], [["g0"], ["g0", "g1"]])
    with pytest.raises(ConfigError, match="Divide them"):
        SetSize.fit([ranking(2)], [["g0", "g1"]]).cut(far)


def test_what_development_rankings_lack_is_counted() -> None:
    sizes = SetSize.fit([ranking(2), ranking(2)], [["g0", "g1"], ["g0", "a", "b"]])
    assert sizes.missing.tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("gold", [[["a"], ["b"]], [["g0", "g1"], ["g0", "g1"]]], ids=["none", "all"])
def test_nothing_to_learn_from_is_refused(gold: list[list[str]]) -> None:
    with pytest.raises(ConfigError, match="4 passages found for 2 development queries"):
        SetSize.fit([ranking(2, 2), ranking(2, 2)], gold)
