"""The set of highest expected F1 against all sets there are."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grls.data.types import Chain, Hit
from grls.retrieve.hops.combine import expected_f1


def chain(names: str, probability: float, done: bool = True) -> Chain:
    return Chain(tuple(Hit(name, -1.0) for name in names), math.log(probability), done)


def f1(some: set[str], right: set[str]) -> float:
    return 2 * len(some & right) / (len(some) + len(right)) if some and right else 0.0


def expected(some: set[str], chains: list[Chain]) -> float:
    total = sum(math.exp(c.score) for c in chains)
    return sum(math.exp(c.score) / total * f1(some, {hit.id for hit in c.hits}) for c in chains)


guesses = st.lists(
    st.builds(
        chain,
        st.lists(st.sampled_from("abcde"), unique=True).map("".join),
        st.floats(0.01, 0.2),
    ),
    min_size=1,
    max_size=5,
)


@given(guesses)
def test_no_set_is_better(chains: list[Chain]) -> None:
    found = expected_f1(chains)
    if not any(some.hits for some in chains):
        assert found == max(chains, key=lambda some: some.score)
        return
    best = max(
        expected(set(some), chains) for size in range(6) for some in itertools.combinations("abcde", size)
    )
    assert expected({hit.id for hit in found.hits}, chains) == pytest.approx(best)
    assert math.exp(found.score) == pytest.approx(best)


def test_what_chains_agree_on_is_taken_and_ranked_by_its_probability() -> None:
    found = expected_f1([chain("xa", 0.1), chain("bay", 0.2), chain("ab", 0.2)])
    assert [hit.id for hit in found.hits] == ["a", "b"]
    assert [math.exp(hit.score) for hit in found.hits] == pytest.approx([1.0, 0.8])


def test_one_chain_is_itself() -> None:
    found = expected_f1([chain("cab", 0.1)])
    assert [hit.id for hit in found.hits] == ["c", "a", "b"]
    assert found.score == pytest.approx(0)


def test_it_is_done_where_half_of_the_chains_are() -> None:
    assert expected_f1([chain("a", 0.1), chain("b", 0.1, done=False)]).done
    assert not expected_f1([chain("a", 0.1), chain("b", 0.2, done=False)]).done


def test_where_no_chain_has_a_passage_the_likeliest_is_left() -> None:
    empty = chain("", 0.2, done=False)
    assert expected_f1([chain("", 0.1), empty]) == empty
    impossible = Chain((Hit("a", -1.0),), -math.inf, True)
    assert expected_f1([impossible]) == impossible


@pytest.mark.parametrize("score", [-20.0, -30.0, -800.0])
def test_an_empty_chain_may_be_all_but_certain(score: float) -> None:
    found = expected_f1([Chain((), 0.0, True), Chain((Hit("a", score),), score, False)])
    assert [hit.id for hit in found.hits] == ["a"]
    assert found.score == (pytest.approx(score) if score > -700 else -math.inf)
    assert found.done


def test_no_chains_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        expected_f1([])
