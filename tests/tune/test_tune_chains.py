"""Which end of chains is chosen: few queries must not move a folder from its own setting."""

from typing import get_args

import pytest

from grls.retrieve.hops.options import Choice
from grls.tune.hops import TriedEnd, chosen_end
from grls.tune.step import paired_error

LIKELIEST, EXPECTED = get_args(Choice)


def test_a_gain_on_one_query_of_few_moves_nothing() -> None:
    """One query of four gains all: 25 points, and so is the standard error."""
    own = TriedEnd([0.0, 1.0, 1.0, 1.0], 0.0, LIKELIEST)
    lucky = TriedEnd([1.0, 1.0, 1.0, 1.0], -2.0, EXPECTED)
    assert paired_error(lucky.f1s, own.f1s) == pytest.approx(0.25)
    assert chosen_end([lucky, own], 0.0, LIKELIEST) == own
    assert chosen_end([lucky, own], -2.0, LIKELIEST) == lucky, "the folder has that bias"


def test_a_gain_on_most_queries_is_taken_by_the_nearest_bias() -> None:
    own = TriedEnd([0.0, 0.2, 0.1, 0.3] * 5, 0.0, LIKELIEST)
    near = TriedEnd([0.5, 0.7, 0.6, 0.7] * 5, -1.0, EXPECTED)
    far = TriedEnd([0.5, 0.7, 0.6, 0.9] * 5, -2.0, LIKELIEST)
    assert far.f1 - near.f1 == pytest.approx(0.05)
    assert chosen_end([own, near, far], 0.0, LIKELIEST) == far, "5 points on a quarter: above the error of 2"
    twice = TriedEnd([0.5, 0.7, 0.6, 0.8, *[0.5, 0.7, 0.6, 0.7] * 4], -2.0, LIKELIEST)
    assert chosen_end([own, near, twice], 0.0, LIKELIEST) == near


def test_with_one_bias_the_choice_of_the_folder_stays_where_it_is_as_good() -> None:
    both = [TriedEnd([0.5, 0.5, 0.6], -1.0, EXPECTED), TriedEnd([0.5, 0.5, 0.5], -1.0, LIKELIEST)]
    assert chosen_end(both, 0.0, LIKELIEST) == both[1]
    assert chosen_end(both, 0.0, EXPECTED) == both[0]


def test_of_one_query_and_of_equally_near_biases_the_best_is_taken() -> None:
    tried = [
        TriedEnd([0.4], -1.0, LIKELIEST),
        TriedEnd([0.5], 1.0, LIKELIEST),
        TriedEnd([0.5], -1.0, LIKELIEST),
    ]
    assert chosen_end(tried, 0.0, LIKELIEST) == tried[1]
