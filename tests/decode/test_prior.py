"""Priors in the search: against every passage's own score, against the plain search, and alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from decode_helpers import finds_the_same, queries, searches, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_t5
from score_all import score_all

from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import LEAST, Fixed, Masses, Prior, RangeSums, WeightedPrior
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index.build import index_sequences
from grls.index.subset import Subset
from grls.models.seq2seq.slots import Seq2SeqGenerator

GENERATOR = Seq2SeqGenerator(small_t5(scale=2.0))


TREES = trees(GENERATOR.model)


def weights(seed: int, count: int, passages: int, spread: float = 3.0) -> np.ndarray:
    return spread * np.random.default_rng(seed).standard_normal((count, passages))


def among(table: np.ndarray) -> Callable[[Any], Any]:
    return lambda numbers: table[numbers]


def prior_of(*parts: tuple[np.ndarray, float]) -> Prior:
    return Prior(tuple(WeightedPrior(among(table), weight) for table, weight in parts))


def softmax(logs: np.ndarray) -> np.ndarray:
    return np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()


def expected_scores(
    model_input: list[int], parts: list[tuple[np.ndarray, float]], may: list[int]
) -> dict[int, float]:
    """The formula, passage by passage, in an index of what may be found; equal passages share their mass."""
    index = index_sequences([np.array(ROWS[p]) for p in may], END)
    found = dict(zip(may, score_all(GENERATOR, index, model_input), strict=True))
    for logs, weight in parts:
        share = dict(zip(may, softmax(logs[may]), strict=True))
        for p in may:
            found[p] += weight * np.log(sum(share[q] for q in may if ROWS[q] == ROWS[p]))
    return found


ROWS = [[3, 4, END], [3, 5, 6, END], [4, END], [5, 3, 3, 3, 4, END], [5, 3, 3, 4, END], [3, 4, END], [6, END]]
"""Shared beginnings, a stretch without a choice, and passages 0 and 5 that are the same."""


@pytest.mark.parametrize("kind", [Decoder, FastDecoder, DeviceDecoder])
def test_a_beam_as_wide_as_the_corpus_equals_the_formula(kind: Any) -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)
    inputs = queries(6)
    first, second = weights(1, 6, len(ROWS)), weights(2, 6, len(ROWS))
    decoder = kind(GENERATOR if kind is Decoder else TREES, index, beams=len(ROWS))
    found = decoder.search(inputs, prior=prior_of((first, 0.7), (second, 0.2)))
    for n, hits in enumerate(found):
        expected = expected_scores(inputs[n], [(first[n], 0.7), (second[n], 0.2)], list(range(len(ROWS))))
        assert sorted(h.passage for h in hits) == list(range(len(ROWS)))
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
        for hit in hits:
            assert hit.score == pytest.approx(expected[hit.passage], abs=1e-4)


@pytest.mark.parametrize("kind", [Decoder, FastDecoder, DeviceDecoder])
def test_a_product_with_a_prior_is_normalized_at_every_token(kind: Any) -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)
    inputs, table, weight = queries(4), weights(5, 4, len(ROWS)), 0.7
    decoder = kind(GENERATOR if kind is Decoder else TREES, index, beams=len(ROWS))
    prior = Prior((WeightedPrior(among(table), weight),), normalized=True)
    for n, hits in enumerate(decoder.search(inputs, prior=prior)):
        model, other = np.exp(score_all(GENERATOR, index, inputs[n])), softmax(table[n])
        expected = product_scores(model, other, weight)
        distinct = {tuple(ROWS[hit.passage]): hit.score for hit in hits}
        assert sum(np.exp(list(distinct.values()))) == pytest.approx(1, abs=1e-4)
        for hit in hits:
            assert hit.score == pytest.approx(expected[tuple(ROWS[hit.passage])], abs=1e-4)


def product_scores(model: np.ndarray, other: np.ndarray, weight: float) -> dict[tuple[int, ...], float]:
    """Each step's softmax of log model + weight * log other, over what may follow.

    Passages of equal tokens count once in the model (they are one row) and together in the other.
    """
    rows = sorted({tuple(row) for row in ROWS})
    masses = [{row: float(model[ROWS.index([*row])]) for row in rows}, dict.fromkeys(rows, 0.0)]
    for row, value in zip(ROWS, other, strict=True):
        masses[1][tuple(row)] += value

    def under(mass: dict[tuple[int, ...], float], prefix: tuple[int, ...]) -> float:
        return sum(value for row, value in mass.items() if row[: len(prefix)] == prefix)

    def step(prefix: tuple[int, ...]) -> float:
        return under(masses[0], prefix) / under(masses[0], prefix[:-1]) * (
            under(masses[1], prefix) / under(masses[1], prefix[:-1])
        ) ** weight  # fmt: skip

    found = {}
    for row in rows:
        score = 0.0
        for length in range(1, len(row) + 1):
            siblings = {other[:length] for other in rows if other[: length - 1] == row[: length - 1]}
            score += np.log(step(row[:length]) / sum(step(sibling) for sibling in siblings))
        found[row] = float(score)
    return found


def test_what_may_not_be_found_has_no_mass() -> None:
    """One filtered query, one with an excluded passage: priors are renormalized over what is left."""
    index = index_sequences([np.array(row) for row in ROWS], END)
    inputs, table = queries(2), weights(3, 2, 7)
    table[0, 3] = table[1, 4] = 50.0  # what may not be found would take all the mass
    allow = [Subset(index.rows, np.array([1, 2, 4, 6])), None]
    for decoder in (
        Decoder(GENERATOR, index, 7),
        FastDecoder(TREES, index, 7),
        DeviceDecoder(TREES, index, 7),
    ):
        found = decoder.search(inputs, exclude=[[], [4]], subsets=allow, prior=prior_of((table, 0.8)))
        for n, may in enumerate(([1, 2, 4, 6], [0, 1, 2, 3, 5, 6])):
            expected = expected_scores(inputs[n], [(table[n], 0.8)], may)
            assert {h.passage: h.score for h in found[n]} == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
@settings(max_examples=75, deadline=None)
@given(
    search=searches(),
    shares=st.lists(st.sampled_from([0.0, 0.3, 0.5, 2.0]), min_size=1, max_size=3),
    fixed=st.booleans(),
    normalized=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_fast_search_finds_what_the_plain_one_finds(
    kind: Any, search: dict[str, Any], shares: list[float], fixed: bool, normalized: bool, seed: int
) -> None:
    count, passages = len(search["inputs"]), len(search["rows"])
    last = Fixed(passages - 1, -0.7) if fixed else None
    tables = [weights(seed + n, count, passages) for n in range(len(shares))]
    parts = (WeightedPrior(among(table), share, last) for table, share in zip(tables, shares, strict=True))
    finds_the_same(search, GENERATOR, TREES, kind, Prior(tuple(parts), normalized))


def test_a_prior_sees_ahead_of_a_narrow_beam() -> None:
    rng = np.random.default_rng(5)
    rows = [np.append(rng.integers(3, 12, 6), END) for _ in range(80)]
    index = index_sequences(rows, END)
    wanted = rng.integers(0, 80, 10)
    table = np.zeros((10, 80))
    table[np.arange(10), wanted] = 60.0
    found = FastDecoder(TREES, index, beams=1).search(queries(10), prior=prior_of((table, 1.0)))
    assert [some[0].passage for some in found] == wanted.tolist()


def test_a_weight_of_zero_is_as_no_prior_and_asks_nobody() -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)

    def never(numbers: Any) -> Any:
        raise AssertionError

    for decoder in (Decoder(GENERATOR, index), FastDecoder(TREES, index), DeviceDecoder(TREES, index)):
        assert decoder.search(queries(5), prior=Prior((WeightedPrior(never, 0.0),))) == decoder.search(
            queries(5)
        )


def test_a_fixed_passage_has_its_probability_among_what_is_left() -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)
    table = weights(4, 1, len(ROWS))
    table[0, 6] = np.nan_to_num(-np.inf)
    prior = Prior((WeightedPrior(among(table), 1.0, Fixed(6, float(np.log(0.25)))),))
    scope = Scope(index, 1, [[1, 2]])
    masses = Masses(prior, index, scope, 1)
    masses.load(np.array([0]))
    row = masses._sums[0].leaves(0)
    rows = index.rows.row_of
    assert row[rows[6]] / row.sum() == pytest.approx(0.25)
    assert row[rows[1]] == row[rows[2]] == 0
    others = [3, 4]
    assert row[rows[3]] / row[rows[4]] == pytest.approx(np.exp(table[0, 3] - table[0, 4]))
    assert row[rows[others]].sum() < 0.75 * row.sum()  # the rest is that of 0 and 5, which are one row


def test_a_passage_of_no_weight_at_all_is_still_found() -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)
    table = np.full((1, len(ROWS)), -np.inf)
    table[0, 3] = 0.0
    for decoder in (
        Decoder(GENERATOR, index, 7),
        FastDecoder(TREES, index, 7),
        DeviceDecoder(TREES, index, 7),
    ):
        hits = decoder.search(queries(1), prior=prior_of((table, 1.0)))[0]
        assert hits[0].passage == 3
        assert len(hits) == len(ROWS)
        assert LEAST - 20 < min(hit.score for hit in hits) < LEAST + 20


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 999))
def test_ranges_equal_plain_sums(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, rows + 1, 3)
    values = [rng.random(n) * 10.0 ** rng.integers(-200, 1, n) for n in counts]
    slots = rng.integers(0, 3, 50)
    low = rng.integers(0, counts[slots])
    high = np.minimum(low + rng.integers(0, rows + 1, 50), counts[slots])
    ranges = RangeSums(3)
    ranges.put(np.arange(3), [rng.random(n) for n in rng.integers(1, rows + 1, 3)])
    ranges.put(np.array([2]), [values[2]])
    ranges.put(np.array([0, 1]), values[:2])
    expected = [values[slot][a:b].sum() for slot, a, b in zip(slots, low, high, strict=True)]
    assert ranges.over(slots, low, high) == pytest.approx(expected, rel=1e-12, abs=0)


def test_what_cannot_be_a_prior_is_refused() -> None:
    index = index_sequences([np.array(row) for row in ROWS], END)
    decoder = FastDecoder(TREES, index)
    table = weights(1, 2, len(ROWS))
    with pytest.raises(ValueError, match="2 queries and 7 passages"):
        decoder.search(queries(2), prior=prior_of((table[:, :3], 1.0)))
    for wrong in (np.nan, np.inf):
        with pytest.raises(ConfigError, match="not numbers"):
            decoder.search(queries(2), prior=prior_of((np.full_like(table, wrong), 1.0)))
