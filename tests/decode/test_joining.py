"""Queries that join a search while it runs get what they get in a search of their own."""

from typing import Any

import numpy as np
import pytest
from decode_helpers import Arrivals, passage, queries, ranking, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_llama, small_t5

from grls.decode.beam import BeamQuery
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior, WeightedPrior
from grls.index.build import index_sequences
from grls.index.subset import Subset

TREES = trees(small_t5(0, scale=2.0))
KINDS = pytest.mark.parametrize(
    ("kind", "planted"), [(FastDecoder, TREES), (DeviceDecoder, TREES), (DeviceDecoder, trees(small_llama()))]
)


@st.composite
def runs(draw: Any) -> dict[str, Any]:
    rows = draw(st.lists(passage(7), min_size=1, max_size=20))
    count, beams = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    numbers = st.lists(st.integers(0, len(rows) - 1), max_size=len(rows), unique=True)
    chosen = st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=len(rows), unique=True)
    allow = st.one_of(st.none(), chosen)
    return {
        "rows": rows,
        "beams": beams,
        "ks": draw(st.lists(st.integers(1, beams), min_size=count, max_size=count)),
        "exclude": draw(st.lists(numbers, min_size=count, max_size=count)),
        "allow": draw(st.lists(allow, min_size=count, max_size=count)),
        "arrive": draw(st.lists(st.integers(0, 40), min_size=count, max_size=count)),
        "leave": draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 60), max_size=5)),
        "slots": draw(st.integers(1, 9)),
        "mode": draw(st.sampled_from(["renormalized", "full"])),
    }


@settings(max_examples=40, deadline=None)
@given(run=runs())
@KINDS
def test_joining_changes_no_result(kind: Any, planted: Any, run: dict[str, Any]) -> None:
    index = index_sequences([np.array(row) for row in run["rows"]], END)
    decoder = kind(planted, index, run["beams"], run["mode"], slots=run["slots"])
    inputs = queries(len(run["ks"]), 3)
    allow = [None if one is None else Subset(index.rows, np.array(sorted(one))) for one in run["allow"]]
    asked = list(zip(inputs, run["ks"], run["exclude"], allow, strict=True))
    source = Arrivals([BeamQuery(*one, n) for n, one in enumerate(asked)], run["arrive"], run["leave"])
    decoder.run(source, longest=12)
    assert {*source.answers} | {*run["leave"]} == {*range(len(asked))} | {*run["leave"]}
    for n, passages in source.answers.items():
        tokens, k, exclude, subset = asked[n]
        (expected,) = decoder.search([tokens], k, [exclude], [subset])
        assert ranking(passages) == ranking(expected)
        assert [one.score for one in passages] == pytest.approx([one.score for one in expected], abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(run=runs())
@KINDS
def test_a_query_that_joins_has_the_frontier_of_a_search_of_its_own(
    kind: Any, planted: Any, run: dict[str, Any]
) -> None:
    index = index_sequences([np.array(row) for row in run["rows"]], END)
    decoder = kind(planted, index, run["beams"], slots=run["slots"])
    count = len(run["ks"])
    inputs = queries(count, 3)
    allow = [None if one is None else Subset(index.rows, np.array(sorted(one))) for one in run["allow"]]
    joining = [
        BeamQuery(tokens, run["beams"], exclude, subset, n)
        for n, (tokens, exclude, subset) in enumerate(zip(inputs, run["exclude"], allow, strict=True))
    ]
    source = Arrivals(joining, run["arrive"], run["leave"])
    decoder.run(source, longest=12, frontiers=True)
    assert {*source.answers} | {*run["leave"]} == {*range(count)} | {*run["leave"]}
    for n, frontier in source.answers.items():
        (expected,) = decoder.frontier([inputs[n]], [run["exclude"][n]], [allow[n]])
        for part, other in zip(frontier, expected, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-4)


def test_a_query_joins_before_the_search_has_ended() -> None:
    rows = [[3, 4, 5, 6, 3, END], [3, 4, 5, 6, 4, END], [5, END], [6, END]]
    index = index_sequences([np.array(row) for row in rows], END)
    decoder = FastDecoder(TREES, index, 4, "full", early_stop=False, slots=2)
    short = Subset(index.rows, np.array([2, 3]))
    joining = [BeamQuery([3, 4, END], 4, (), None, 0), BeamQuery([5, END], 4, (), short, 1)]
    source = Arrivals(joining, [0, 2], {})
    decoder.run(source, longest=3)
    assert list(source.answers) == [1, 0]


def test_a_query_that_leaves_frees_its_slot() -> None:
    rows = [[3, 4, 5, 6, 3, END], [3, 4, 5, 6, 4, END], [5, END]]
    index = index_sequences([np.array(row) for row in rows], END)
    decoder = FastDecoder(TREES, index, 4, "full", early_stop=False, slots=1)
    joining = [BeamQuery([3, 4, END], 4, (), None, n) for n in range(2)]
    source = Arrivals(joining, [0, 1], {0: 3})
    decoder.run(source, longest=3)
    assert list(source.answers) == [1]
    assert source.turn < 12


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
def test_a_query_that_joins_brings_its_beam_width_and_its_priors(kind: Any) -> None:
    rng = np.random.default_rng(6)
    index = index_sequences([np.append(rng.integers(3, 5, 9), END) for _ in range(60)], END)
    table = 2 * rng.standard_normal((5, 60))
    prior = Prior((WeightedPrior(lambda numbers: table[numbers], 0.8),))
    widths = [2, 7, 3, 2, 12]
    joining = [
        BeamQuery(tokens, width, (), None, n, width, prior, n)
        for n, (tokens, width) in enumerate(zip(queries(5), widths, strict=True))
    ]
    source = Arrivals(joining, [0, 0, 1, 2, 2], {})
    most = 3 if kind is FastDecoder else 12  # a grid has one width, the widest
    kind(TREES, index, beams=most, slots=2).run(source, longest=12)
    for n, query in enumerate(joining):
        alone = FastDecoder(TREES, index, beams=widths[n])
        (expected,) = alone.search([query.tokens], widths[n], prior=prior.among([n]))
        if widths[n] < 3:  # else this shows nothing
            wider = FastDecoder(TREES, index, beams=3)
            (other,) = wider.search([query.tokens], widths[n], prior=prior.among([n]))
            assert ranking(other) != ranking(expected)
        assert ranking(source.answers[n]) == ranking(expected)
        assert [hit.score for hit in source.answers[n]] == pytest.approx(
            [hit.score for hit in expected], abs=1e-4
        )
