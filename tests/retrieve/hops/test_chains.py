"""Chains of hops: scripted scores, against the enumeration of all chains, as rankings and sets."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_all import score_all
from scripted_hops import ScriptedHops
from small_data import FROGS, small_retriever, write_jsonl

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Passage, Query
from grls.index.build import index_sequences
from grls.models.seq2seq.slots import Seq2SeqGenerator
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.combine import expected_f1
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, pooled_ranking
from grls.retrieve.hops.stop import DoneByScore, StopRule

CORPUS = Corpus.from_passages(FROGS)


class WordOverlap:
    corpus = CORPUS

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        self.asked.append([query.text for query in queries])
        return [self._top(set(query.text.split()), k) for query in queries]

    def _top(self, words: set[str], k: int) -> list[Hit]:
        scored = [Hit(p.id, float(len(words & set(p.text.split())))) for p in FROGS]
        return sorted((hit for hit in scored if hit.score), key=lambda hit: -hit.score)[:k]


def named(chain: Chain) -> str:
    return "".join(hit.id for hit in chain.hits) + ("." if chain.done else "")


class Later(DoneByScore):
    def __init__(self, least: int, bias: float = 0.0):
        super().__init__(bias)
        object.__setattr__(self, "least_hops", least)

    def may_end(self, hop: int) -> bool:
        return hop >= self.least_hops  # type: ignore[attr-defined,no-any-return]


def appending(retriever: Any, hops: int, dynamic: bool = False, **options: Any) -> HopsRetriever:
    return HopsRetriever(retriever, HopOptions("dynamic" if dynamic else "fixed", hops, **options))


def scripted(
    table: dict[str, dict[str, float]], hops: int, stop: StopRule | None = None, **options: Any
) -> list[Chain]:
    made = appending(ScriptedHops(table, score=float), hops, **options)
    made.hop_search.stop = stop or made.hop_search.stop
    return made.retrieve_chains([Query("q", "?")])[0]


def best(retriever: Any, hops: int, queries: list[Query]) -> list[Chain]:
    return [chains[0] for chains in appending(retriever, hops).retrieve_chains(queries)]


def test_appending_asks_with_what_was_found_and_takes_the_best_new_passage() -> None:
    retriever = WordOverlap()
    chains = best(retriever, 3, [Query("q1", "eat flies"), Query("q2", "stone")])
    assert retriever.asked == [
        ["eat flies", "stone"],
        ["eat flies green frogs eat flies", "stone stone walls"],
        [
            "eat flies green frogs eat flies ponds hold green green water and frogs",
            "stone stone walls stone walls",
        ],
    ]
    assert list(chains[0].hits) == [Hit("p1", 2.0), Hit("p3", 2.0), Hit("p2", 2.0)]
    assert chains[0].score == 6.0
    assert [hit.id for hit in chains[1].hits] == ["p4", "p5"]  # then nothing new is found
    assert not any(chain.done for chain in chains)
    retriever = WordOverlap()
    best(retriever, 2, [Query("q", "near")])
    assert retriever.asked[1] == ["near Insects flies live near ponds"]


TURNING = {
    "": {"a": 0.6, "b": 0.5, "c": 0.1}, "a": {"a": 0.9, "b": 0.2, "c": 0.3},
    "b": {"a": 0.4, "b": 0.9, "c": 0.7}, "c": {"a": 0.1, "b": 0.1, "c": 0.9},
}  # fmt: skip
"""a begins best, b then c is best: 0.6 + 0.3 against 0.5 + 0.7."""


def test_the_best_chain_wins_and_not_the_best_first_hop() -> None:
    assert [named(chain) for chain in scripted(TURNING, 2)] == ["ac"]
    (best, second) = scripted(TURNING, 2, chains=2, branch=2)
    assert (named(best), best.score) == ("bc", pytest.approx(1.2))
    assert best.hits == (Hit("b", 0.5), Hit("c", 0.7))
    assert named(second) in ("ac", "ba")


ENDING = {
    "": {"a": 0.6, "b": 0.5, "c": 0.1, "DONE": 0.9}, "a": {"b": 0.4, "c": 0.3, "DONE": 0.35},
    "b": {"a": 0.2, "c": 0.1, "DONE": 0.8}, "ab": {"c": 0.1, "DONE": 0.3}, "ba": {"c": 0.1, "DONE": 0.3},
    "abc": {"DONE": -5.0},
}  # fmt: skip


def test_done_ends_a_chain_and_is_no_hit() -> None:
    (chain,) = scripted(ENDING, 5, dynamic=True)
    assert (named(chain), chain.hits) == ("ab.", (Hit("a", 0.6), Hit("b", 0.4)))
    assert chain.score == pytest.approx((0.6 + 0.4 + 0.3) / 3)
    assert [named(c) for c in scripted(ENDING, 3)] == ["abc"]  # a fixed chain has no DONE


@pytest.mark.parametrize(("bias", "expected"), [(0.1, "a."), (0.0, "ab."), (-0.25, "abc")])
def test_the_bias_of_done_sets_the_length(bias: float, expected: str) -> None:
    (chain,) = scripted(ENDING, 3, dynamic=True, done_bias=bias)
    assert named(chain) == expected
    if expected == "a.":
        assert chain.score == pytest.approx((0.6 + 0.35 + bias) / 2)


def test_a_rule_says_after_how_many_hops_done_may_come() -> None:
    assert named(scripted(ENDING, 5, Later(0), dynamic=True)[0]) == "."
    assert named(scripted(ENDING, 5, Later(2, 2.0), dynamic=True)[0]) == "ab."
    assert named(scripted(ENDING, 5, Later(3), dynamic=True)[0]) == "abc."  # nothing else is left


def test_dynamic_chains_are_ranked_by_the_mean_of_a_hop() -> None:
    """b. has 0.65 a hop, ab. 0.43: the sum would put the longer one first."""
    best, second = scripted(ENDING, 3, dynamic=True, chains=2, branch=2)
    assert (named(best), best.score) == ("b.", pytest.approx(0.65))
    assert (named(second), second.score) == ("ab.", pytest.approx(1.3 / 3))


def test_a_query_ends_when_as_many_chains_as_are_kept_have_ended() -> None:
    retriever = ScriptedHops(ENDING, score=float)
    search = appending(retriever, 5, dynamic=True, chains=2, branch=2)
    search.retrieve_chains([Query("q", "?")])
    assert retriever.asked == ["", "a", "b", "ab", "ba"]  # abc and bac could go on, two others have ended


@pytest.mark.parametrize(("learned", "dynamic", "warns"), [
    (False, True, True), (False, False, False), (True, True, False), (None, True, False),
])  # fmt: skip
def test_a_done_that_was_never_learned_is_warned_of(
    learned: bool | None, dynamic: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"": {"a": 2.0, "DONE": 1.0}, "a": {"b": 1.0, "DONE": 2.0}}
    retriever = ScriptedHops(table, learned, score=float)
    appending(retriever, 2, dynamic).retrieve_chains([Query("q", "?"), Query("r", "?")])
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warns  # once, whatever is asked
    assert all("not trained with DONE" in m and "fit.done" in m for m in messages)


def test_pooling_takes_the_chains_in_order_and_each_passage_once() -> None:
    chains = [
        Chain((Hit("a", 1.0), Hit("b", 9.0)), 10.0, False),
        Chain((Hit("b", 8.0), Hit("c", 1.0)), 9.0, False),
        Chain((Hit("d", 7.0), Hit("a", 1.0)), 8.0, True),
    ]
    assert pooled_ranking(chains, 10) == [Hit("a", 1.0), Hit("b", 1 / 2), Hit("c", 1 / 3), Hit("d", 1 / 4)]
    assert [hit.id for hit in pooled_ranking(chains, 3)] == ["a", "b", "c"]
    assert pooled_ranking([], 3) == []


QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "is it proud ?")]


@pytest.fixture(scope="module")
def large(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=12)


@pytest.fixture(scope="module")
def small(large: GenerativeRetriever, tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    return over(large, [large.corpus[n].text for n in (0, 3, 8, 9)], tmp_path_factory.mktemp("four"))


def over(retriever: GenerativeRetriever, texts: list[str], folder: Path) -> GenerativeRetriever:
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"p{n}", "text": t} for n, t in enumerate(texts)])
    options = SearchOptions(beams=len(texts) + 1)
    return GenerativeRetriever.assemble(
        retriever.model, retriever.codec.tokenizer, Corpus.read(folder), options=options
    )


def searching(
    retriever: GenerativeRetriever, hops: int = 20, dynamic: bool = True, **options: Any
) -> HopsRetriever:
    return HopsRetriever(retriever, HopOptions("dynamic" if dynamic else "fixed", hops, **options))


def all_chains(
    retriever: GenerativeRetriever, query: Query, hops: int, done_bias: float = 0.0, repeat: bool = False
) -> dict[tuple[str, ...], float]:
    """Every chain with its score, DONE written as such; each hop scores what is left of the corpus."""
    generator = Seq2SeqGenerator(retriever.model)
    codec, index = retriever.codec, retriever.index
    tokens = codec.queries([query.id], [query.text])[0]
    ids = [p.id for p in retriever.corpus] + ["DONE"]
    ended: dict[tuple[str, ...], float] = {}

    def follow(chain: tuple[int, ...], score: float) -> None:
        if len(chain) == hops or (chain and chain[-1] == retriever.done):
            ended[tuple(ids[n] for n in chain)] = score
            return
        left = [n for n in range(len(ids)) if repeat or n not in chain]
        if not chain:
            left.remove(retriever.done)
        if not left:
            ended[tuple(ids[n] for n in chain)] = score
            return
        rest = index_sequences([index.tokens(n) for n in left], codec.end)
        source = codec.model_input(tokens, [index.tokens(n) for n in chain])
        odds = np.exp(score_all(generator, rest, source))
        odds[[n == retriever.done for n in left]] *= math.exp(done_bias)
        for n, step in zip(left, np.log(odds / odds.sum()), strict=True):
            follow((*chain, n), score + step)

    follow((), 0.0)
    return ended


def steps_of(chain: Chain) -> tuple[str, ...]:
    return (*(hit.id for hit in chain.hits), *(["DONE"] if chain.done else []))


@pytest.mark.parametrize(("hops", "done_bias"), [(2, 0.0), (3, 0.0), (3, 1.5), (3, -1.5)])
def test_wide_beams_find_every_chain_with_its_score(
    small: GenerativeRetriever, hops: int, done_bias: float
) -> None:
    search = searching(small, hops, chains=200, branch=5, done_bias=done_bias)
    for query, chains in zip(QUERIES, search.retrieve_chains(QUERIES), strict=True):
        expected = all_chains(small, query, hops, done_bias)
        assert {steps_of(chain): chain.score for chain in chains} == pytest.approx(expected, abs=1e-4)
        scores = [chain.score for chain in chains]
        assert scores == sorted(scores, reverse=True)
        assert sum(map(math.exp, scores)) == pytest.approx(1.0, abs=1e-4)


def test_orders_of_a_set_are_one_chain_whose_probability_is_their_sum(small: GenerativeRetriever) -> None:
    search = searching(small, hops=2, chains=30, branch=5, sets=True)
    plain = searching(small, hops=2, chains=30, branch=5)
    for query in QUERIES:
        sets: dict[frozenset[str], float] = {}
        for chain, score in all_chains(small, query, 2).items():
            sets[frozenset(chain)] = np.logaddexp(sets.get(frozenset(chain), -np.inf), score)
        best = {}
        for chain in plain.retrieve_chains([query])[0]:
            best.setdefault(frozenset(steps_of(chain)), steps_of(chain))  # best first
        (found,) = search.retrieve_chains([query])
        assert [chain.score for chain in found] == sorted((c.score for c in found), reverse=True)
        assert {frozenset(steps_of(chain)): chain.score for chain in found} == pytest.approx(sets, abs=1e-4)
        assert [best[frozenset(steps_of(chain))] for chain in found] == [steps_of(chain) for chain in found]


def test_a_passage_found_twice_is_another_set(small: GenerativeRetriever) -> None:
    search = searching(small, hops=2, chains=60, branch=5, repeat=True, sets=True)
    for query in QUERIES:
        sets: dict[tuple[str, ...], float] = {}
        for chain, score in all_chains(small, query, 2, repeat=True).items():
            key = tuple(sorted(chain))
            sets[key] = np.logaddexp(sets.get(key, -np.inf), score)
        (found,) = search.retrieve_chains([query])
        assert {
            tuple(sorted(steps_of(chain))): c for chain, c in ((f, f.score) for f in found)
        } == pytest.approx(sets, abs=1e-4)


def test_a_small_corpus_gives_shorter_chains_and_fewer_hits(
    large: GenerativeRetriever, tmp_path: Path
) -> None:
    tiny = over(large, ["the otter is calm .", "the lynx is quick ."], tmp_path)
    assert [len(hits) for hits in tiny.retrieve(QUERIES, 10)] == [2, 2, 2]
    for chains in searching(tiny, 5, dynamic=False, chains=4).retrieve_chains(QUERIES):
        assert {steps_of(chain) for chain in chains} == {("p0", "p1"), ("p1", "p0")}
    for chains in searching(tiny, 5, chains=9, done_bias=-50.0).retrieve_chains(QUERIES):
        assert {len(chain.hits) for chain in chains[:2]} == {2}


TEXTS = {"a": "red fox", "b": "fox den", "c": "red brick", "d": "red red wall"}
FOXES = BM25Retriever(Corpus.from_passages([Passage(*pair) for pair in TEXTS.items()]))


def test_the_chain_comes_first_and_what_is_missing_is_found_in_a_single_step() -> None:
    """With the query's own filter."""
    assert HopsRetriever(FOXES, HopOptions("fixed", 2)).retrieve(["den"], 3) == [
        [Hit("b", 1.0), Hit("a", 0.5)]
    ]
    hops = HopsRetriever(FOXES, HopOptions("fixed", 1))
    red, den = hops.retrieve(["red", "den"], 2, [{"a", "c"}, {"b"}])
    assert [hit.id for hit in red] == ["a", "c"]
    assert [hit.score for hit in red] == [1.0, 0.5]
    assert [hit.id for hit in den] == ["b"]


def chain(names: str, probability: float, done: bool = True) -> Chain:
    return Chain(tuple(Hit(name, -1.0) for name in names), math.log(probability), done)


def f1(some: set[str], right: set[str]) -> float:
    return 2 * len(some & right) / (len(some) + len(right)) if some and right else 0.0


def expected(some: set[str], chains: list[Chain]) -> float:
    total = sum(math.exp(c.score) for c in chains)
    return sum(math.exp(c.score) / total * f1(some, {hit.id for hit in c.hits}) for c in chains)


guesses = st.lists(
    st.builds(chain, st.lists(st.sampled_from("abcde"), unique=True).map("".join), st.floats(0.01, 0.2)),
    min_size=1, max_size=5,
)  # fmt: skip


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


def test_what_chains_agree_on_is_taken_and_it_is_done_where_half_of_them_are() -> None:
    found = expected_f1([chain("xa", 0.1), chain("bay", 0.2), chain("ab", 0.2)])
    assert [hit.id for hit in found.hits] == ["a", "b"]
    assert [math.exp(hit.score) for hit in found.hits] == pytest.approx([1.0, 0.8])
    found = expected_f1([chain("cab", 0.1)])
    assert [hit.id for hit in found.hits] == ["c", "a", "b"]
    assert found.score == pytest.approx(0)
    assert expected_f1([chain("a", 0.1), chain("b", 0.1, done=False)]).done
    assert not expected_f1([chain("a", 0.1), chain("b", 0.2, done=False)]).done


@pytest.mark.parametrize("score", [-20.0, -30.0, -800.0])
def test_an_empty_chain_may_be_all_but_certain(score: float) -> None:
    found = expected_f1([Chain((), 0.0, True), Chain((Hit("a", score),), score, False)])
    assert [hit.id for hit in found.hits] == ["a"]
    assert found.score == (pytest.approx(score) if score > -700 else -math.inf)
    assert found.done
