"""Both searches under filters: against an index of the allowed passages alone, on every backend."""

from typing import Any

import numpy as np
import pytest
from decode_helpers import passage, queries, ranking, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_t5

from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.index.backends import BACKENDS
from grls.index.build import index_sequences
from grls.index.subset import NumberSet, SetCounter, Subset
from grls.models.seq2seq.slots import Seq2SeqGenerator

GENERATOR = Seq2SeqGenerator(small_t5(scale=2.0))
TREES = trees(GENERATOR.model)


@st.composite
def searches(draw: Any) -> dict[str, Any]:
    rows = draw(st.lists(passage(7), min_size=1, max_size=25))
    mode = draw(st.sampled_from(["renormalized", "full"]))
    early_stop = draw(st.sampled_from([None, True, False]))
    stops = mode == "renormalized" if early_stop is None else early_stop
    kinds = [(backend, "whole") for backend in sorted(BACKENDS)] + [("array", "prefixes")] * stops
    count = draw(st.integers(1, 4))
    some = st.lists(st.integers(0, len(rows) - 1), max_size=len(rows))
    beams = draw(st.integers(1, 30))
    return {
        "rows": rows,
        "inputs": queries(count, draw(st.integers(0, 99))),
        "allow": draw(st.lists(st.one_of(st.none(), some), min_size=count, max_size=count)),
        "exclude": draw(st.one_of(st.just(()), st.lists(some, min_size=count, max_size=count))),
        "share": draw(st.booleans()),
        "beams": beams,
        "k": draw(st.integers(1, beams)),
        "mode": mode,
        "early_stop": early_stop,
        "slots": draw(st.integers(1, 5)),
        "kind": draw(st.sampled_from(kinds)),
    }


def naive(search: dict[str, Any], query: int, how: tuple[Any, ...]) -> list[tuple[int, float]]:
    """What is found in an index that holds nothing but what the query may find."""
    rows, allow = search["rows"], search["allow"][query]
    hidden = [rows[p] for p in search["exclude"][query]] if search["exclude"] else []
    kept = [n for n in range(len(rows)) if (allow is None or n in allow) and rows[n] not in hidden]
    index = index_sequences([np.array(rows[n]) for n in kept], END)
    found = Decoder(GENERATOR, index, *how).search([search["inputs"][query]], search["k"])[0]
    return [(kept[hit.passage], hit.score) for hit in found]


@settings(max_examples=80, deadline=None)
@given(searches())
def test_a_filter_finds_what_an_index_of_the_allowed_passages_finds(search: dict[str, Any]) -> None:
    if search["share"]:
        search["allow"] = [search["allow"][0]] * len(search["inputs"])
    index = index_sequences([np.array(row) for row in search["rows"]], END, *search["kind"])
    how = (search["beams"], search["mode"], search["early_stop"])
    made = [None if some is None else Subset(index.rows, np.array(some, int)) for some in search["allow"]]
    if search["share"]:
        made = [made[0]] * len(made)
    plain = Decoder(GENERATOR, index, *how)
    fast = FastDecoder(TREES, index, *how, slots=search["slots"])
    what = (search["inputs"], search["k"], search["exclude"], made)
    for query, both in enumerate(zip(plain.search(*what), fast.search(*what), strict=True)):
        expected = naive(search, query, how)
        for found in both:
            assert [hit.score for hit in found] == pytest.approx([score for _, score in expected], abs=1e-4)
            assert ranking(found) == [p for _, p in sorted((-round(s, 3), p) for p, s in expected)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.data())
def test_numbers_are_counted_in_lists_and_in_words(limit: int, data: Any) -> None:
    some = st.sets(st.integers(0, limit - 1))
    every = [set(range(limit)), {limit - 1}, set(), *data.draw(st.lists(some, max_size=3))]
    sets = [NumberSet(np.array(sorted(one), np.int64), limit) for one in every]
    for which in (every, [every[0]], [every[1]]):
        kept = [every.index(one) for one in which]
        low = np.arange(limit + 1)
        high = np.minimum(low + data.draw(st.integers(0, limit)), limit)
        several = SetCounter([sets[n] for n in kept])
        for place, n in enumerate(kept):
            expected = [len([m for m in every[n] if a <= m < b]) for a, b in zip(low, high, strict=True)]
            assert several.count(np.full(len(low), place), low, high).tolist() == expected
            a, b = int(low[limit // 2]), int(high[limit // 2])
            assert sets[n].between(a, b).tolist() == sorted(m for m in every[n] if a <= m < b)
    mixed = np.arange(len(sets))
    counts = SetCounter(sets).count(mixed, np.zeros_like(mixed), np.full_like(mixed, limit))
    assert counts.tolist() == [len(one) for one in every]
