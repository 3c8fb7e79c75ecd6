"""Where searches leave off: all that may be found is beneath one leaf, with all of the probability."""

from typing import Any

import numpy as np
import pytest
from decode_helpers import plain, queries, searches, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_llama, small_t5
from score_all import score_all

from grls.decode import slots
from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.frontier import Frontier
from grls.decode.gpu import decision
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior, WeightedPrior
from grls.index.build import index_sequences
from grls.index.subset import Subset
from grls.models.seq2seq.slots import Seq2SeqGenerator

GENERATOR = Seq2SeqGenerator(small_t5(scale=2.0))
TREES = trees(GENERATOR.model)
LLAMA = small_llama()


@st.composite
def beside_priors(draw: Any) -> dict[str, Any]:
    return {
        **draw(searches()),
        "weights": draw(st.lists(st.sampled_from([0.3, 0.7, 2.0]), max_size=2)),
        "normalized": draw(st.booleans()),
        "seed": draw(st.integers(0, 9)),
        "without": draw(st.sampled_from([0.0, 0.2])),  # the share of passages without a mass
        "threshold": draw(st.sampled_from([None, 0.5, 3.0])),
        "part": draw(st.sampled_from([1, 1 << 28])),  # masses of one query at a time, or of all
    }


def prior_of(search: dict[str, Any]) -> Prior | None:
    rng = np.random.default_rng(search["seed"])
    shape = len(search["inputs"]), len(search["rows"])
    tables = [
        np.where(rng.random(shape) < search["without"], -np.inf, 2 * rng.standard_normal(shape))
        for _ in search["weights"]
    ]
    parts = [
        WeightedPrior(lambda numbers, table=table: table[numbers], weight)  # type: ignore[misc]
        for table, weight in zip(tables, search["weights"], strict=True)
    ]
    return Prior(tuple(parts), search["normalized"]) if parts else None


@pytest.mark.parametrize(
    ("kind", "model", "planted"),
    [
        (FastDecoder, GENERATOR, TREES),
        (DeviceDecoder, GENERATOR, TREES),
        (DeviceDecoder, plain(LLAMA), trees(LLAMA)),
    ],
)
@settings(max_examples=75, deadline=None)
@given(search=beside_priors())
def test_leaves_divide_what_may_be_found_and_its_probability(
    kind: Any, model: Any, planted: Any, search: dict[str, Any]
) -> None:
    index = index_sequences([np.array(row) for row in search["rows"]], END, "array")
    allow = [None if some is None else Subset(index.rows, np.array(some, int)) for some in search["allow"]]
    what = search["inputs"], search["exclude"], allow, None, prior_of(search)
    near = {"threshold": search["threshold"]}
    reference = Decoder(model, index, search["beams"], **near).frontier(*what)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_GROUP", 1)
        patch.setattr(decision, "_PART", search["part"])
        fast = kind(planted, index, search["beams"], slots=search["slots"], **near).frontier(*what)
    normalized = search["normalized"] or not search["weights"]
    for query, (one, other) in enumerate(zip(reference, fast, strict=True)):
        hidden = search["exclude"][query] if search["exclude"] else []
        allowed = search["allow"][query] if search["allow"] else None
        gone = {int(index.rows.row_of[p]) for p in hidden}
        may = {
            int(index.rows.row_of[p]) for p in range(len(search["rows"])) if allowed is None or p in allowed
        }
        beneath = [row for low, high in zip(one.low, one.high, strict=True) for row in range(low, high)]
        assert len(set(beneath)) == len(beneath)
        assert may - gone <= set(beneath)
        counts = [len((may - gone) & set(range(*some))) for some in zip(one.low, one.high, strict=True)]
        assert one.counts.tolist() == counts
        if may - gone:
            assert np.exp(one.own).sum() == pytest.approx(1.0, abs=1e-4)
            every = np.array(sorted(may - gone))
            assert np.exp(one.log_probabilities(every)).sum() == pytest.approx(1.0, abs=1e-4)
        if normalized:
            np.testing.assert_allclose(one.own, one.scores)
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_allclose(its, mine, atol=1e-4)


def test_rows_that_the_beam_wrote_have_their_own_probability() -> None:
    rows = [[3, 4, END], [3, 5, 6, END], [4, END], [5, 3, 3, 3, 4, END], [5, 3, 3, 4, END], [6, END]]
    index = index_sequences([np.array(row) for row in rows], END)
    (source,) = queries(1)
    (frontier,) = FastDecoder(TREES, index, beams=len(rows)).frontier([source])
    expected = score_all(GENERATOR, index, source)
    found = frontier.log_probabilities(index.rows.row_of.astype(np.int64))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    weights = np.arange(6.0)[None]
    prior = Prior((WeightedPrior(lambda numbers: weights[numbers], 1.5),))
    (beside,) = FastDecoder(TREES, index, beams=len(rows)).frontier([source], prior=prior)
    np.testing.assert_allclose(
        beside.log_probabilities(index.rows.row_of.astype(np.int64)), expected, atol=1e-4
    )
    shares = weights[0] - np.logaddexp.reduce(weights[0])
    order = np.argsort(index.rows.row_of)
    np.testing.assert_allclose(beside.scores, (expected + 1.5 * shares)[order], atol=1e-4)


def test_a_beam_far_below_the_best_one_goes_no_further() -> None:
    rows = [[3, 4, n] for n in range(5, 12)] + [[4, 3, n] for n in range(5, 12)] + [[5, 6, 7], [5, 6, 8]]
    index = index_sequences([np.array([*row, END]) for row in rows], END, "array")
    whole, same, near = (
        FastDecoder(TREES, index, 8, threshold=threshold).frontier([[3, 4, 5]])[0]
        for threshold in (None, 100.0, 0.01)
    )
    assert np.array_equal(same.low, whole.low)
    assert len(near.low) < len(whole.low)
    assert np.exp(near.own).sum() == pytest.approx(1.0, abs=1e-4)
    left = near.scores[near.counts > 1]
    assert (left < near.scores.max() - 0.01).all()


def test_the_densest_leaves_come_first_until_there_are_rows_enough() -> None:
    ints = [np.array(some) for some in ([0, 4, 5, 8], [4, 5, 8, 9], [2, 1, 3, 1])]
    frontier = Frontier(*ints, np.log([0.4, 0.3, 0.1, 0.2]), np.zeros(4))
    assert frontier.densest(1).tolist() == [1]
    assert frontier.densest(2).tolist() == [1, 0]
    assert frontier.densest(4).tolist() == [1, 0, 3]
    assert frontier.densest(100).tolist() == [1, 0, 3, 2]


def test_no_query_has_no_frontier() -> None:
    index = index_sequences([np.array([3, END]), np.array([4, END])], END, "array")
    assert Decoder(GENERATOR, index).frontier([]) == FastDecoder(TREES, index).frontier([]) == []
    (nothing,) = Decoder(GENERATOR, index).frontier([[3]], exclude=[[0, 1]])
    assert nothing.log_probabilities(np.array([0, 1])).tolist() == [-np.inf] * 2
