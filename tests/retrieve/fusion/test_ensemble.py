"""Ensembles of retrievers: who is asked for how much, what is fused, how long chains are."""

import pytest

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.retriever import (
    FusedChains,
    FusionRetriever,
    chain_hits,
    chain_length,
    fuse_chains,
)
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, RankedHops

CORPUS = Corpus.from_passages([Passage(i, f"text {i}") for i in "abcdef"])
QUERIES = [Query("q1", "one"), Query("q2", "two")]


class Fixed:
    """A retriever that knows its answers, and remembers what it was asked for."""

    def __init__(self, answers, corpus=CORPUS):
        self.answers, self.corpus, self.asked = answers, corpus, []

    def retrieve(self, queries, k, allow=None):
        self.asked.append(k)
        return [[Hit(i, -float(n)) for n, i in enumerate(self.answers[q.id][:k])] for q in queries]


class FixedChains:
    """A multi-step retriever that knows its chains."""

    def __init__(self, chains, corpus=CORPUS):
        self.chains, self.corpus = chains, corpus

    def retrieve_chains(self, queries, allow=None):
        return [[self.chains[q.id], Chain((Hit("f", -9.0),), -9.0, False)] for q in queries]


def chain(passages, done=True, score=-1.0):
    return Chain(tuple(Hit(i, score) for i in passages), score * len(passages), done)


def ids(hits):
    return [hit.id for hit in hits]


def test_members_are_asked_and_interleaved():
    one, two = Fixed({"q1": "abc", "q2": ""}), Fixed({"q1": "cde", "q2": "fa"})
    found = FusionRetriever([one, two]).retrieve(QUERIES, 3)
    assert [ids(hits) for hits in found] == [["a", "c", "b"], ["f", "a"]]
    assert one.asked == two.asked == [3]


def test_depth_says_how_many_hits_give_scores_and_members_are_asked_for_no_less_than_k():
    one, two = Fixed({"q1": "abcd", "q2": "a"}), Fixed({"q1": "efcd", "q2": "a"})
    shallow = FusionRetriever([one, two], Fusion("rrf"), depth=1).retrieve(QUERIES, 2)
    assert ids(shallow[0]) == ["a", "e"]
    deep = FusionRetriever([one, two], Fusion("rrf"), depth=4).retrieve(QUERIES, 2)
    assert ids(deep[0]) == ["c", "d"]
    FusionRetriever([one, two], Fusion("rrf")).retrieve(QUERIES, 2)
    assert one.asked == [2, 4, 20]


@pytest.mark.parametrize(
    "fusion",
    [
        Fusion(),
        Fusion("rrf"),
        Fusion("rrf", weights=(0.25, 0.75)),
        *(Fusion("sum", how) for how in ("min-max", "zmuv", "rank", "borda", "none")),
    ],
    ids=str,
)
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
    for k in (1, 2, 5, 10, 20, 21, 40):
        assert fused.retrieve(QUERIES[:1], k)[0] == full[:k]


def test_a_member_without_weight_adds_nothing_beyond_the_depth():
    one, two = Fixed({"q1": "abcd"}), Fixed({"q1": "ef"})
    (hits,) = FusionRetriever([one, two], Fusion("rrf", weights=(1.0, 0.0)), depth=2).retrieve(QUERIES[:1], 6)
    assert ids(hits) == ["a", "b", "c", "d"]


def test_an_ensemble_is_a_retriever():
    inner = FusionRetriever([Fixed({"q1": "ab", "q2": "a"}), Fixed({"q1": "c", "q2": "b"})])
    outer = FusionRetriever([inner, Fixed({"q1": "d", "q2": "b"})])
    assert [ids(hits) for hits in outer.retrieve(QUERIES, 4)] == [["a", "d", "c", "b"], ["a", "b"]]
    assert outer.corpus is CORPUS


def test_members_over_different_corpora_are_refused_with_both_named():
    other = Corpus.from_passages([Passage("a", "text a")], "other.jsonl")
    answers = {"q1": "a", "q2": "a"}
    with pytest.raises(MismatchError, match=r"Fixed is over corpus \(6 .* BM25Retriever over other.jsonl"):
        FusionRetriever([Fixed(answers), BM25Retriever(other)])
    same = Corpus.from_passages(list(CORPUS))
    assert FusionRetriever([Fixed(answers), Fixed(answers, same)]).corpus is CORPUS


def test_members_that_find_chains_are_over_one_corpus():
    other = Corpus.from_passages([Passage("a", "text a")], "other.jsonl")
    with pytest.raises(MismatchError, match=r"other\.jsonl"):
        FusedChains([FixedChains({}), FixedChains({}, other)])


@pytest.mark.parametrize("kind", [FusionRetriever, FusedChains])
def test_members_and_weights_that_cannot_work(kind):
    with pytest.raises(ConfigError, match="at least two members, got 1"):
        kind([Fixed({})])
    with pytest.raises(ConfigError, match="3 weights for 2 members"):
        kind([Fixed({}), Fixed({})], Fusion("rrf", weights=(1.0, 1.0, 1.0)))
    with pytest.raises(ConfigError, match="depth must be at least 1"):
        FusionRetriever([Fixed({}), Fixed({})], depth=0)
    with pytest.raises(ConfigError, match="length 2 names no member"):
        FusedChains([Fixed({}), Fixed({})], length=2)


def test_dynamic_chains_are_interleaved_and_as_long_as_the_mean():
    one = FixedChains({"q1": chain("ab"), "q2": chain("")})
    two = FixedChains({"q1": chain("cad", done=False), "q2": chain("e")})
    (first,), (second,) = FusedChains([one, two]).retrieve_chains(QUERIES)
    assert ids(first.hits) == ["a", "c", "b"]  # (2 + 3) / 2, rounded up
    assert not first.done
    assert first.score == pytest.approx(1 + 1 / 2 + 1 / 3)
    assert (ids(second.hits), second.done) == (["e"], True)


@pytest.mark.parametrize(
    ("length", "passages", "done"),
    [("min", "a", False), ("max", "acb", False), (0, "a", True), (1, "acb", False), ("mean", "ac", False)],
)
def test_the_length_of_a_chain(length, passages, done):
    fused = fuse_chains([chain("a"), chain("cbd", done=False)], Fusion(), length)
    assert ("".join(ids(fused.hits)), fused.done) == (passages, done)


def test_lengths_are_rounded_half_up():
    assert [chain_length(some, "mean") for some in ([1, 2], [2, 3], [1, 1, 2], [1, 2, 2], [0, 0])] == [
        2, 3, 1, 2, 0,
    ]  # fmt: skip


def test_chains_of_a_member_without_an_answer_count_as_empty():
    class Silent:
        corpus = CORPUS

        def retrieve_chains(self, queries, allow=None):
            return [[] for _ in queries]

    one = FixedChains({"q1": chain("ab"), "q2": chain("c")})
    (first,), (second,) = FusedChains([one, Silent()]).retrieve_chains(QUERIES)
    assert (ids(first.hits), first.done) == (["a"], False)
    assert ids(second.hits) == ["c"]


def test_fixed_chains_are_fused_as_rankings():
    one, two = (
        FixedChains({"q1": chain("ab"), "q2": chain("c")}),
        FixedChains({"q1": chain("cb"), "q2": chain("c")}),
    )
    found = FusedChains([one, two], Fusion("rrf")).retrieve(QUERIES, 2)
    assert [ids(hits) for hits in found] == [["b", "a"], ["c"]]


def test_text_retrievers_that_append_are_members():
    texts = {"a": "red fox", "b": "fox den", "c": "den mother"}
    corpus = Corpus.from_passages([Passage(*pair) for pair in texts.items()])
    steps = HopsRetriever(BM25Retriever(corpus), HopOptions("fixed", 2))
    found = FusedChains([steps, FixedChains({"q": chain("c")}, corpus)]).retrieve([Query("q", "red")], 3)
    assert ids(found[0]) == ["a", "c", "b"]


def test_a_chain_ranks_its_passages_by_hop_without_done():
    hits = chain_hits(Chain((Hit("b", -1.0), Hit("a", -0.5), Hit("b", -0.1), Hit("DONE", -2.0)), -3.6, True))
    assert hits == [Hit("b", -1.0), Hit("a", -1.5)]
    positive = chain_hits(Chain((Hit("b", 3.0), Hit("a", 5.0)), 8.0, False))  # BM25
    assert positive == [Hit("b", 3.0), Hit("a", 3.0)]


def test_the_settings_of_a_run_name_the_depth():
    members = [BM25Retriever(Corpus.from_passages([Passage("a", "an otter"), Passage("b", "a heron")]))] * 2
    retrievers = [FusionRetriever(members, Fusion("rrf"), depth) for depth in (None, 20, 50)]
    assert [one.describe().options.get("depth") for one in retrievers] == [None, 20, 50]
    over = RankedHops(retrievers[2], HopOptions(steps="ranked", temperature=1.0))
    assert over.describe().options["depth"] == 50
