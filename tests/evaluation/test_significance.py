"""Paired tests against hand-known values and against the whole enumeration."""

from itertools import product

import pytest

from grls.errors import ConfigError, DataError
from grls.evaluation.significance import compare, format_comparison, holm, shown_p


def enumerated(differences):
    """The exact two-sided p by every swap, written down naively: twice the smaller tail."""
    seen = sum(differences)
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    above = sum(s >= seen - 1e-12 for s in sums) / len(sums)
    below = sum(s <= seen + 1e-12 for s in sums) / len(sums)
    return min(1.0, 2 * min(above, below))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 1, 1, 1, 1], [0, 0, 0, 0, 0]),
        ([1, 0.5, 0.2, 1, 0, 1], [0, 1, 0.1, 0.5, 0.3, 0.25]),
        ([0.25, 0.5, 1], [0.5, 0.25, 0]),
    ],
)
def test_few_queries_are_tested_exactly(first, second):
    result = compare(first, second)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    assert result.p == pytest.approx(enumerated(differences))
    assert result.difference == pytest.approx(sum(differences) / len(differences))
    assert result.queries == len(first)


def test_queries_on_which_both_are_equal_change_the_difference_but_not_p():
    alone = compare([1, 1, 1, 0.5], [0, 0, 0, 1])
    among = compare([1, 1, 1, 0.5] + [0.3] * 36, [0, 0, 0, 1] + [0.3] * 36)
    assert among.p == alone.p
    assert among.difference == pytest.approx(alone.difference / 10)


def test_many_queries_are_resampled_with_a_fixed_seed():
    first = [(7 * n % 10) / 10 for n in range(60)]
    second = [(3 * n % 10) / 10 for n in range(60)]
    shifted = [value + 0.3 for value in second]
    assert compare(first, second, 999) == compare(first, second, 999)
    assert compare(first, second, 999, seed=1) != compare(first, second, 999)
    assert compare(first, second, 999).p > 0.2
    assert compare(first, shifted, 999).p < 0.05
    assert compare(shifted, second, 999)[:4] == pytest.approx((0.3, 0.3, 0.3, 2 / 1000))


def test_the_interval_holds_the_difference_and_turns_with_the_sign():
    first, second = [0.9, 0.1, 0.8, 0.7, 0.4, 1.0], [0.5, 0.2, 0.1, 0.6, 0.4, 0.3]
    one, other = compare(first, second), compare(second, first)
    assert one.low < one.difference < one.high
    assert other.difference == -one.difference
    assert other.p == pytest.approx(one.p)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=0.05)


def test_equal_runs_differ_by_nothing():
    assert compare([0.5, 1, 0], [0.5, 1, 0]) == (0.0, 0.0, 0.0, 1.0, 3)


def test_one_query_proves_nothing():
    assert compare([1], [0]) == (1.0, None, None, 1.0, 1)
    assert compare([1, 0.5, 0.5], [0, 0.5, 0.5]).p == 1.0


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(DataError, match="got 2 and 1"):
        compare([1, 0], [1])
    with pytest.raises(DataError, match="at least one"):
        compare([], [])
    with pytest.raises(ConfigError, match="resamples must be at least 1, got 0"):
        compare([1], [0], resamples=0)


def test_holm():
    # Holm (1979) by hand: 0.005*4, 0.01*3, 0.03*2, then 0.04 may not fall below 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_small_p_is_shown_as_small_and_never_as_0() -> None:
    assert [shown_p(p) for p in (1.0, 0.0514, 0.001, 0.00099, 0.0001)] == [
        "1.000", "0.051", "0.001", "< 0.001", "< 0.001"
    ]  # fmt: skip
    compared = format_comparison({"RR": compare([1.0] * 40, [0.0] * 40)}, "base")
    assert compared.splitlines()[-1].split()[-2:] == ["<", "0.001"]
