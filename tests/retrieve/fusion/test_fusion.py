"""Fusion: known values, the naive loop, ranx; ensembles, runs in memory, and where a ranking is cut."""

import itertools
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from failing import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from grls.data.corpus import Corpus
from grls.data.types import FullHit, Hit, NameLink, Passage, Query, Steps
from grls.errors import ConfigError
from grls.retrieve.base import HopHits
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.fusion.retriever import (
    Fusion,
    FusionRetriever,
    comb_sum,
    interleave,
    min_max,
)
from grls.retrieve.fusion.runs import ensemble, fused_run, shared_steps
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.runs.portions import RunInfo
from grls.runs.run import Run

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
fusions = st.sampled_from([Fusion(), Fusion("rrf"), Fusion("sum")])


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


def test_sums_of_scaled_scores():
    assert min_max(A) == [1.0, 0.75, 0.0]
    assert min_max([Hit("a", 2.0), Hit("b", 2.0)]) == [1.0, 1.0]
    assert min_max([]) == []
    fused = Fusion("sum", (0.5, 0.5)).fuse([A, B])
    assert fused == [Hit("a", 0.5), Hit("c", 0.5), Hit("b", 0.375), Hit("d", 0.25)]
    assert ids(Fusion("sum", (0.2, 0.8)).fuse([A, B])) == ["c", "d", "a", "b"]


def test_sums_of_equal_terms_tie_in_any_order():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1 in floating point; x and y tie, and y was ranked first."""
    ranks = ({"x": 0, "y": 2}, {"x": 1, "y": 1}, {"x": 2, "y": 0})
    rankings = [
        [Hit(i, 0.0) for i in sorted(["x", "y", f"f{n}"], key=lambda i: r.get(i, 1.5))]
        for n, r in enumerate(ranks)
    ]
    scores = {hit.id: hit.score for hit in Fusion("rrf").fuse(rankings)}
    again = {hit.id: hit.score for hit in Fusion("rrf").fuse(rankings[::-1])}
    assert scores == again
    terms = [[Hit("x", 0.0)], [Hit("y", 0.0)]]
    assert ids(Fusion("rrf").fuse(terms)) == ["x", "y"]
    assert ids(Fusion("rrf").fuse(terms[::-1])) == ["y", "x"]


@pytest.mark.parametrize("method", ["rrf", "sum"])
def test_links_are_those_of_the_first_member_that_counts(method):
    links = [(NameLink(name, "z"),) for name in "xy"]
    first, second = ([FullHit.of(Hit("p", 1.0), links=one)] for one in links)
    plain = [Hit("p", 2.0), Hit("q", 1.0)]
    fused = Fusion(method, (1.0, 0.0)).fuse([plain, first])
    assert fused == Fusion(method, (1.0, 0.0)).fuse([plain, plain])
    assert not any(hit.links for hit in fused)
    for weights, expected in ((1.0, 0.0, 1.0), links[1]), ((1.0, 1.0, 1.0), links[0]):
        assert Fusion(method, weights).fuse([plain, first, second])[0].links == expected


RANX = """
import json, sys
import ranx
runs = [ranx.Run(run) for run in json.load(sys.stdin)]
for norm, method, params in (None, "rrf", {}), ("min-max", "wsum", {"weights": [0.5, 0.3, 0.2]}):
    fused = ranx.fuse(runs, norm=norm, method=method, params=params)
    print(json.dumps({q: {p: float(s) for p, s in hits.items()} for q, hits in fused.run.items()}))
"""


def ranx_fuse(runs):
    """ranx as plain Python: compiled, its first call takes minutes.

    In a process of its own: if something has loaded ranx or numba before, half of it is compiled.
    """
    done = subprocess.run(
        [sys.executable, "-c", RANX], input=json.dumps(runs), env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_scores_agree_with_ranx():
    random_ = random.Random(0)
    runs = [
        {f"q{q}": {p: random_.uniform(-9, 9) for p in random_.sample("abcdefgh", 5)} for q in range(4)}
        for _ in range(3)
    ]
    hits = [
        {q: sorted((Hit(*s) for s in run[q].items()), key=lambda h: -h.score) for q in run} for run in runs
    ]
    runs_ = [Run(rankings) for rankings in hits]
    ours = [
        fused_run(runs_, fusion, 8).rankings for fusion in (Fusion("rrf"), Fusion("sum", (0.5, 0.3, 0.2)))
    ]
    for theirs, fused in zip(ranx_fuse(runs), ours, strict=True):
        assert theirs.keys() == fused.keys()
        for query, hits in fused.items():
            assert {hit.id: hit.score for hit in hits} == pytest.approx(theirs[query])


def test_a_query_that_a_run_answers_with_nothing_has_the_hits_of_the_others():
    fused = fused_run([Run({"p": A, "q": []}), Run({"q": B, "p": []})], Fusion(), k=2).rankings
    assert {query: ids(hits) for query, hits in fused.items()} == {"p": ["a", "b"], "q": ["c", "d"]}


def test_comb_sum_adds_scores_as_they_are():
    """What a ranking does not hold adds nothing; ties go to the better rank."""
    first, second = [Hit("a", 0.5), Hit("b", 0.25)], [Hit("b", 0.5), Hit("c", 0.5)]
    assert comb_sum([first, second]) == [Hit("b", 0.75), Hit("a", 0.5), Hit("c", 0.5)]
    assert comb_sum([second, second, []]) == [Hit("b", 1.0), Hit("c", 1.0)]
    assert comb_sum([]) == []


CORPUS = Corpus.from_passages([Passage(i, f"text {i}") for i in "abcdef"])
QUERIES = [Query("q1", "one"), Query("q2", "two")]


class Fixed:
    def __init__(self, answers, corpus=CORPUS):
        self.answers, self.corpus, self.asked = answers, corpus, []

    def retrieve(self, queries, k, allow=None):
        self.asked.append(k)
        return [[Hit(i, -float(n)) for n, i in enumerate(self.answers[q.id][:k])] for q in queries]


def test_members_are_asked_and_interleaved():
    one, two = Fixed({"q1": "abc", "q2": ""}), Fixed({"q1": "cde", "q2": "fa"})
    found = FusionRetriever([one, two]).retrieve(QUERIES, 3)
    assert [ids(hits) for hits in found] == [["a", "c", "b"], ["f", "a"]]
    assert one.asked == two.asked == [3]


def test_members_take_the_evidence_each_in_its_own_way():
    """One as passages; BM25 in their words, since the query alone finds nothing."""
    texts = {"a": "a holt", "b": "a den", "c": "holt den", "d": "heron", "e": "lynx"}
    corpus = Corpus.from_passages(itertools.starmap(Passage, texts.items()))

    class AfterPassages(Fixed):
        def retrieve_hop(self, queries, evidence, k, allow=None):
            return [HopHits([Hit(self.answers[last.id], 0.0)], None) for *_, last in evidence]

    fused = FusionRetriever([AfterPassages({"a": "d", "b": "e"}, corpus), BM25Retriever(corpus)])
    steps = fused.retrieve_hop([Query("q", "otter")] * 2, [(corpus[0],), (corpus[1],)], 3)
    assert [ids(step.hits) for step in steps] == [["d", "a", "c"], ["e", "b", "c"]]


def test_depth_says_how_many_hits_give_scores_and_members_are_asked_for_no_less_than_k():
    one, two = Fixed({"q1": "abcd", "q2": "a"}), Fixed({"q1": "efcd", "q2": "a"})
    shallow = FusionRetriever([one, two], Fusion("rrf"), depth=1).retrieve(QUERIES, 2)
    assert ids(shallow[0]) == ["a", "e"]
    deep = FusionRetriever([one, two], Fusion("rrf"), depth=4).retrieve(QUERIES, 2)
    assert ids(deep[0]) == ["c", "d"]
    FusionRetriever([one, two], Fusion("rrf")).retrieve(QUERIES, 2)
    assert one.asked == [2, 4, 20]


@pytest.mark.parametrize("fusion", [
    Fusion(),
    Fusion("rrf"),
    Fusion("rrf", weights=(0.25, 0.75)),
    Fusion("sum"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("depth", [None, 3])
def test_neither_score_nor_order_depends_on_k(fusion, depth):
    """Where as many hits as asked for were fused, a passage had another score for every k."""
    names = [f"p{n}" for n in range(60)]
    corpus = Corpus.from_passages([Passage(name, name) for name in names])
    orders = [[names[(step * n + 5) % 60] for n in range(60)] for step in (7, 11)]
    members = [Fixed({"q1": order}, corpus) for order in orders]
    fused = FusionRetriever(members, fusion, depth)
    (full,) = fused.retrieve(QUERIES[:1], 60)
    assert sorted(ids(full)) == sorted(names)
    scores = [hit.score for hit in full]
    assert scores == sorted(scores, reverse=True)
    for k in (1, 2, 20, 21):
        assert fused.retrieve(QUERIES[:1], k)[0] == full[:k]


def test_the_settings_of_a_run_name_the_depth():
    members = [BM25Retriever(Corpus.from_passages([Passage("a", "an otter"), Passage("b", "a heron")]))] * 2
    retrievers = [FusionRetriever(members, Fusion("rrf"), depth) for depth in (None, 20, 50)]
    assert [one.describe().options.get("depth") for one in retrievers] == [None, 20, 50]
    over = RankedHops(retrievers[2], HopOptions(steps="ranked", temperature=1.0))
    assert over.describe().options["depth"] == 50


INFO = RunInfo("bm25", "one", "single", "c", "q", "data", "test", "bm25", stages=("retrieve",), seconds=2.0)
FIRST = replace(Run.of({"q": [Hit("a", 2.0), Hit("b", 1.0)]}, info=INFO), path="one.jsonl")


def test_a_fusion_of_rankings_that_were_cut_off_is_no_deeper_than_they_are() -> None:
    def ranking(ids: str, k: int | None, steps: Steps = "single", pool: bool = False) -> Run:
        hits = [Hit(letter, -float(n)) for n, letter in enumerate(ids)]
        options = {"k": k, "pool": pool}
        return Run.of({"q": hits}, info=replace(INFO, steps=steps, options=options))

    def depth(*runs: Run, k: int | None = None, passages: int | None = None) -> int | None:
        fused = ensemble(runs, Fusion(), {}, k)
        return fused.depth(passages)

    short, deep, whole = ranking("abc", 3), ranking("defghi", 6), ranking("xyzuv", 10)
    assert (short.depth(), deep.depth(), whole.depth()) == (3, 6, None)
    assert depth(short, deep) == depth(short, deep, k=5) == 3
    assert depth(short, deep, k=2) == 2
    assert depth(deep, whole) == depth(deep, whole, k=20) == 6
    assert depth(deep, whole, passages=6) is None  # the whole corpus
    assert depth(whole, whole) == 5  # as many as the longest list, and the lists held more together
    assert depth(whole, whole, k=20) is None
    hops, pooled = ranking("abc", 3, "fixed"), ranking("abc", 3, "fixed", pool=True)
    assert depth(hops, hops) is None  # chains
    assert depth(hops, pooled) == 3


def test_steps_are_those_of_all_members() -> None:
    fixed = Run({}, info=replace(INFO, steps="fixed"))
    assert shared_steps([fixed, fixed]) == "fixed"
    assert shared_steps([fixed, FIRST]) == "single"
    ranked = Run({}, info=replace(INFO, steps="ranked"))
    assert shared_steps([ranked, FIRST]) == shared_steps([fixed, ranked]) == "ranked"
    chains = Run({}, info=replace(INFO, steps="dynamic"), path="d.jsonl")
    raises(ConfigError, r"d\.jsonl is dynamic: chains .* are not fused", shared_steps, [FIRST, chains])


def test_a_fusion_is_known_by_its_members_and_weights() -> None:
    def fused(*members: str, weights: tuple[float, ...] | None = None) -> str:
        runs = [replace(FIRST, info=replace(INFO, retriever=one)) for one in members]
        made = ensemble(runs, Fusion("rrf", weights=weights), {})
        assert made.info is not None
        return made.info.retriever

    different = [fused("a", "b"), fused("a", "c"), fused("b", "a"), fused("a", "b", weights=(1.0, 2.0))]
    assert len({*different}) == 4
    assert fused("a", "") == ""
