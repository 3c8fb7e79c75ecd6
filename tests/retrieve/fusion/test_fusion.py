"""Fusion: small known values, the naive loop for interleaving, ranx for the formulas."""

import json
import math
import os
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grls.data.types import Hit
from grls.errors import ConfigError, MismatchError
from grls.retrieve.fusion.fuse import (
    Fusion,
    calibrate,
    comb_sum,
    fuse_rankings,
    interleave,
    rrf,
    tune_weights,
    weight_grid,
    weighted_sum,
)

A = [Hit("a", -1.0), Hit("b", -2.0), Hit("c", -5.0)]
B = [Hit("c", 30.0), Hit("d", 20.0), Hit("a", 10.0)]


def ids(hits):
    return [hit.id for hit in hits]


def naive_interleave(rankings):
    """The definition: go down the ranks, at each rank through the members, take what is new."""
    taken = []
    for rank in range(max(map(len, rankings), default=0)):
        for hits in rankings:
            if rank < len(hits) and hits[rank].id not in taken:
                taken.append(hits[rank].id)
    return taken


lists = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)
members = st.lists(lists, min_size=1, max_size=4).map(
    lambda some: [[Hit(i, -float(n // 2)) for n, i in enumerate(one)] for one in some]
)
fusions = st.sampled_from(
    [Fusion(), Fusion("rrf"), *(Fusion("sum", n) for n in ("min-max", "zmuv", "rank", "borda", "none"))]
)


@given(members)
def test_interleaving_is_the_naive_loop(rankings):
    assert ids(interleave(rankings)) == naive_interleave(rankings)


@given(members, fusions, st.integers(1, 9))
@settings(max_examples=100)
def test_every_fusion_holds_each_passage_of_the_union_once_with_falling_scores(rankings, fusion, k):
    fused = fusion.fuse(rankings)
    assert sorted(ids(fused)) == sorted({hit.id for hits in rankings for hit in hits})
    assert all(a.score >= b.score for a, b in pairwise(fused))
    assert all(math.isfinite(hit.score) for hit in fused)
    assert fusion.fuse(rankings, k) == fused[:k]


@given(lists, fusions)
def test_a_ranking_fused_with_itself_or_with_nothing_keeps_its_order(one, fusion):
    hits = [Hit(i, -float(n)) for n, i in enumerate(one)]
    assert ids(fusion.fuse([hits, hits])) == one
    assert ids(fusion.fuse([[], hits])) == one


def test_interleaving_in_turn_drops_duplicates():
    assert interleave([A, B]) == [Hit("a", 1.0), Hit("c", 1 / 2), Hit("b", 1 / 3), Hit("d", 1 / 4)]
    assert ids(interleave([B, A])) == ["c", "a", "d", "b"]
    assert interleave([[], []]) == []


def test_reciprocal_ranks():
    fused = {hit.id: hit.score for hit in rrf([A, B], (1, 1))}
    assert fused == pytest.approx({"a": 1 / 61 + 1 / 63, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 62})
    assert ids(rrf([A, B], (1, 1))) == ["a", "c", "b", "d"]  # both pairs tie: the earlier member's first
    assert ids(rrf([A, B], (0.4, 0.6))) == ["c", "a", "d", "b"]
    assert rrf([A], (1,), k=0)[1].score == 1 / 2


def test_calibrated_sums():
    assert calibrate(A, "min-max", 4) == ({"a": 1.0, "b": 0.75, "c": 0.0}, 0.0)
    assert calibrate(A, "rank", 4) == (pytest.approx({"a": 1.0, "b": 2 / 3, "c": 1 / 3}), 0.0)
    assert calibrate(A, "borda", 4) == ({"a": 1.0, "b": 0.75, "c": 0.5}, 0.25)
    assert calibrate(A, "none", 4) == ({"a": -1.0, "b": -2.0, "c": -5.0}, -5.0)
    scores, missing = calibrate(B, "zmuv", 4)
    assert scores == pytest.approx({"c": math.sqrt(1.5), "d": 0.0, "a": -math.sqrt(1.5)})
    assert missing == scores["a"]
    fused = weighted_sum([A, B], (0.5, 0.5))
    assert fused == [Hit("a", 0.5), Hit("c", 0.5), Hit("b", 0.375), Hit("d", 0.25)]
    assert ids(weighted_sum([A, B], (0.2, 0.8))) == ["c", "d", "a", "b"]


def test_to_be_missed_is_never_better_than_to_be_found():
    """Raw log-probabilities and z-scores: with 0 for a miss, d would come first."""
    for normalization in ("none", "zmuv"):
        one, two = [Hit("a", -1.0), Hit("b", -2.0)], [Hit("d", -0.5), Hit("a", -1.0)]
        assert ids(weighted_sum([one, two], (1, 1), normalization)) == ["a", "d", "b"]


def test_a_single_hit_and_equal_scores_count_as_found():
    assert calibrate([Hit("a", -7.0)], "min-max", 1) == ({"a": 1.0}, 0.0)
    assert calibrate([Hit("a", 2.0), Hit("b", 2.0)], "zmuv", 2) == ({"a": 0.0, "b": 0.0}, 0.0)
    assert calibrate([], "zmuv", 2) == ({}, 0.0)


def test_the_weight_0_leaves_a_ranking_out():
    assert ids(Fusion("sum", weights=(1.0, 0.0)).fuse([A, B])) == ids(A)
    assert ids(Fusion("rrf", weights=(0.0, 1.0)).fuse([A, B])) == ids(B)


def test_sums_of_equal_terms_tie_in_any_order():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1 in floating point; x and y tie, and y was ranked first."""
    ranks = ({"x": 0, "y": 2}, {"x": 1, "y": 1}, {"x": 2, "y": 0})
    rankings = [
        [Hit(i, 0.0) for i in sorted(["x", "y", f"f{n}"], key=lambda i: r.get(i, 1.5))]
        for n, r in enumerate(ranks)
    ]
    weights = (1.0, 1.0, 1.0)
    scores = {hit.id: hit.score for hit in rrf(rankings, weights)}
    again = {hit.id: hit.score for hit in rrf(rankings[::-1], weights)}
    assert scores == again
    terms = [[Hit("x", 0.0)], [Hit("y", 0.0)]]
    assert ids(rrf(terms, (1, 1))) == ["x", "y"]
    assert ids(rrf(terms[::-1], (1, 1))) == ["y", "x"]


RANX = """
import json, sys
from ranx import Run, fuse
made = []
for runs, norm, method, weights in json.load(sys.stdin):
    params = {"weights": weights} if method == "wsum" else {}
    fused = fuse([Run(run) for run in runs], norm=norm, method=method, params=params)
    made.append({q: {p: float(s) for p, s in hits.items()} for q, hits in fused.run.items()})
print(json.dumps(made))
"""


def ranx_fuse(cases):
    """ranx as plain Python in a process of its own: compiled, its first call takes minutes."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run(
        [sys.executable, "-c", RANX], input=json.dumps(cases), env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def test_scores_agree_with_ranx():
    """Over rankings of the same passages for z-scores, of different ones for the others."""
    random_ = random.Random(0)
    cases, ours = [], []
    for norm in ("min-max", "zmuv", "rank", "borda", None):
        runs = []
        for _ in range(3):
            shared = norm == "zmuv"
            runs.append(
                {
                    f"q{q}": {
                        p: random_.uniform(-9, 9) for p in random_.sample("abcdefgh", 8 if shared else 5)
                    }
                    for q in range(4)
                }
            )
        hits = [
            {q: sorted((Hit(*s) for s in run[q].items()), key=lambda h: -h.score) for q in run}
            for run in runs
        ]
        if norm is None:
            cases.append((runs, None, "rrf", None))
            ours.append(fuse_rankings(hits, Fusion("rrf")))
        else:
            cases.append((runs, norm, "wsum", [0.5, 0.3, 0.2]))
            ours.append(fuse_rankings(hits, Fusion("sum", norm, (0.5, 0.3, 0.2))))
    for theirs, fused in zip(ranx_fuse(cases), ours, strict=True):
        assert theirs.keys() == fused.keys()
        for query, hits in fused.items():
            assert {hit.id: hit.score for hit in hits} == pytest.approx(theirs[query])


def test_members_without_the_same_queries_are_refused():
    fused = fuse_rankings([{"p": A, "q": []}, {"q": B, "p": []}], Fusion(), k=2)
    assert {query: ids(hits) for query, hits in fused.items()} == {"p": ["a", "b"], "q": ["c", "d"]}
    with pytest.raises(MismatchError, match=r"members 1 and 3 .* 2 are in one alone, such as 'o'"):
        fuse_rankings([{"q": A, "p": A}, {"q": A, "p": A}, {"q": A, "o": A}], Fusion())


def test_the_grid_is_every_weight_once_the_most_even_first():
    assert list(weight_grid(2, 4)) == [(0.5, 0.5), (0.75, 0.25), (0.25, 0.75), (1.0, 0.0), (0.0, 1.0)]
    three = list(weight_grid(3))
    assert len(set(three)) == len(three) == 66
    assert all(sum(weights) == pytest.approx(1) and len(weights) == 3 for weights in three)
    assert three[0] == (0.4, 0.3, 0.3)


def test_tuning_takes_the_best_weights_and_of_equal_ones_the_most_even():
    fusion, value = tune_weights(2, Fusion("sum"), lambda tried: -abs(tried.weights[0] - 0.3))
    assert (fusion.weights, value) == ((0.3, 0.7), 0.0)
    assert fusion.method == "sum"
    fusion, _ = tune_weights(2, Fusion("rrf"), lambda tried: float(tried.weights[0] > 0.5))
    assert fusion.weights == (0.6, 0.4)
    with pytest.raises(ConfigError, match="takes no weights"):
        tune_weights(2, Fusion(), lambda tried: 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "average"}, "method must be one of interleave, rrf, sum, got 'average'"),
        ({"normalization": "softmax"}, "normalization must be one of .*got 'softmax'"),
        ({"method": "rrf", "rrf_k": -1}, "rrf_k must be at least 0"),
        ({"method": "rrf", "rrf_k": math.nan}, "rrf_k must be"),
        ({"weights": (1.0, 1.0)}, "interleaving takes no weights"),
        ({"method": "sum", "weights": (1.0, -1.0)}, "weights of at least 0"),
        ({"method": "sum", "weights": (0.0, 0.0)}, "one of them above 0"),
        ({"method": "rrf", "weights": (math.inf, 1.0)}, "weights of at least 0"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Fusion(**options)


def test_weights_and_k_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="3 weights for 2 members"):
        Fusion("rrf", weights=(1.0, 1.0, 1.0)).fuse([A, B])
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        Fusion().fuse([A, B], 0)


def test_comb_sum_adds_scores_as_they_are():
    """What a ranking does not hold adds nothing; ties go to the better rank."""
    first, second = [Hit("a", 0.5), Hit("b", 0.25)], [Hit("b", 0.5), Hit("c", 0.5)]
    assert comb_sum([first, second]) == [Hit("b", 0.75), Hit("a", 0.5), Hit("c", 0.5)]
    assert comb_sum([second, second, []]) == [Hit("b", 1.0), Hit("c", 1.0)]
    assert comb_sum([]) == []
