"""Chains of hops against the enumeration of all chains."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_data import small_retriever, write_jsonl, write_small

from grls.data.corpus import Corpus
from grls.data.types import Chain, Query
from grls.decode import ScoredPassage
from grls.decode.score_all import score_all
from grls.errors import ConfigError, DataError
from grls.index import index_sequences
from grls.models.seq2seq.plain import Seq2SeqGenerator
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hops.search import Memory
from grls.retrieve.hops.stop import DoneByLogOdds

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "is it proud ?")]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    """All ten passages."""
    return small_retriever(write_small(tmp_path_factory.mktemp("multi") / "data"), beams=12)


@pytest.fixture(scope="module")
def small(large: GenerativeRetriever, tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    """Four passages."""
    return over(large, [large.corpus[n].text for n in (0, 3, 8, 9)], tmp_path_factory.mktemp("four"))


def over(retriever: GenerativeRetriever, texts: list[str], folder: Path) -> GenerativeRetriever:
    """The same model over other passages p0, p1, …"""
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


def named(chain: Chain) -> tuple[str, ...]:
    return (*(hit.id for hit in chain.hits), *(["DONE"] if chain.done else []))


@pytest.mark.parametrize(("hops", "done_bias"), [(2, 0.0), (3, 0.0), (3, 1.5), (3, -1.5)])
def test_wide_beams_find_every_chain_with_its_score(
    small: GenerativeRetriever, hops: int, done_bias: float
) -> None:
    search = searching(small, hops, chains=200, branch=5, done_bias=done_bias)
    for query, chains in zip(QUERIES, search.retrieve_chains(QUERIES), strict=True):
        expected = all_chains(small, query, hops, done_bias)
        assert {named(chain): chain.score for chain in chains} == pytest.approx(expected, abs=1e-4)
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
            best.setdefault(frozenset(named(chain)), named(chain))  # best first
        (found,) = search.retrieve_chains([query])
        assert [chain.score for chain in found] == sorted((c.score for c in found), reverse=True)
        assert {frozenset(named(chain)): chain.score for chain in found} == pytest.approx(sets, abs=1e-4)
        assert [best[frozenset(named(chain))] for chain in found] == [named(chain) for chain in found]


def test_a_passage_found_twice_is_another_set(small: GenerativeRetriever) -> None:
    search = searching(small, hops=2, chains=60, branch=5, repeat=True, sets=True)
    for query in QUERIES:
        sets: dict[tuple[str, ...], float] = {}
        for chain, score in all_chains(small, query, 2, repeat=True).items():
            key = tuple(sorted(chain))
            sets[key] = np.logaddexp(sets.get(key, -np.inf), score)
        (found,) = search.retrieve_chains([query])
        assert {
            tuple(sorted(named(chain))): c for chain, c in ((f, f.score) for f in found)
        } == pytest.approx(sets, abs=1e-4)


def test_repeats_are_found_where_they_are_allowed(small: GenerativeRetriever) -> None:
    search = searching(small, 2, chains=200, branch=5, repeat=True)
    (chains,) = search.retrieve_chains(QUERIES[:1])
    expected = all_chains(small, QUERIES[0], 2, repeat=True)
    assert {named(chain): chain.score for chain in chains} == pytest.approx(expected, abs=1e-4)
    assert ("p0", "p0") in expected


def test_a_chain_holds_no_passage_twice(large: GenerativeRetriever) -> None:
    for chains in searching(large, 6, dynamic=False).retrieve_chains(QUERIES):
        assert len(chains) == 4
        for chain in chains:
            assert len({hit.id for hit in chain.hits}) == len(chain.hits) == 6
            assert not chain.done


def test_the_score_of_a_chain_is_the_sum_of_its_hops(large: GenerativeRetriever) -> None:
    fixed = searching(large, 3, dynamic=False).retrieve_chains(QUERIES)
    for chain in (chain for chains in fixed for chain in chains):
        assert chain.score == pytest.approx(sum(hit.score for hit in chain.hits), abs=1e-6)
    dynamic = searching(large, 3, chains=8, branch=8, done_bias=3.0).retrieve_chains(QUERIES)
    ended = [chain for chains in dynamic for chain in chains if chain.done]
    assert ended
    for chain in ended:  # DONE and its weight have their share
        assert chain.score != pytest.approx(sum(hit.score for hit in chain.hits), abs=1e-3)


def test_done_is_no_hit_and_never_ends_a_fixed_chain(large: GenerativeRetriever) -> None:
    dynamic = searching(large, 4, done_bias=50.0).retrieve_chains(QUERIES)
    fixed = searching(large, 4, dynamic=False, done_bias=50.0).retrieve_chains(QUERIES)
    assert all(chain.done for chains in dynamic for chain in chains)
    assert all(not chain.done and len(chain.hits) == 4 for chains in fixed for chain in chains)
    assert "DONE" not in {hit.id for chains in dynamic + fixed for chain in chains for hit in chain.hits}


def test_a_negative_bias_makes_chains_longer(large: GenerativeRetriever) -> None:
    def mean(bias: float) -> float:
        found = searching(large, 6, done_bias=bias).retrieve_chains(QUERIES)
        return float(np.mean([len(chains[0].hits) for chains in found]))

    lengths = [mean(bias) for bias in (20.0, 0.0, -20.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] == 6.0


def test_a_bias_reorders_finished_chains(small: GenerativeRetriever) -> None:
    """p0, DONE: 0.9 * 0.5 = 0.45; p0, p1, DONE: 0.9 * 0.5 * 0.8 = 0.36. Half the odds of DONE turn them."""
    scripted = Scripted(small.model, small.codec, small.corpus, small.index, small.options)
    scripted.table = {
        (): (0.9, 0.1, 0.0, 0.0),
        (0,): (0.0, 0.5, 0.0, 0.0, 0.5),
        (1,): (0.5, 0.0, 0.0, 0.0, 0.5),
        (0, 1): (0.0, 0.0, 0.2, 0.0, 0.8),
        (1, 0): (0.0, 0.0, 0.2, 0.0, 0.8),
        (0, 1, 2): (0.0, 0.0, 0.0, 0.0, 1.0),
        (1, 0, 2): (0.0, 0.0, 0.0, 0.0, 1.0),
    }
    for bias, best, score in ((0.0, ("p0", "DONE"), 0.45), (math.log(0.5), ("p0", "p1", "DONE"), 0.4)):
        chain = searching(scripted, 4, done_bias=bias).retrieve_chains(QUERIES[:1])[0][0]
        assert (named(chain), math.exp(chain.score)) == (best, pytest.approx(score))


def test_a_rule_says_after_how_many_hops_done_may_come(large: GenerativeRetriever) -> None:
    class Later(DoneByLogOdds):
        def may_end(self, hop: int) -> bool:
            return hop >= least

    for least in (1, 2, 3):
        hops = searching(large, 5)
        hops.search.stop = Later(50.0)
        found = hops.retrieve_chains(QUERIES)
        assert min(len(chain.hits) for chains in found for chain in chains) == least


class Scripted(GenerativeRetriever):
    """Finds what a table says: chain so far -> probabilities of the passages p0, p1, …"""

    table: dict[tuple[int, ...], tuple[float, ...]]

    def search(self, inputs, k, exclude, label="retrieve", allow=()):  # type: ignore[no-untyped-def]
        tokens = self.codec.queries(["a"], [QUERIES[0].text])[0]
        chains = {
            tuple(self.codec.model_input(tokens, [self.index.tokens(n) for n in chain])): chain
            for chain in self.table
        }
        results = []
        for row, hidden in zip(inputs, exclude, strict=True):
            scores = enumerate(self.table[chains[tuple(row)]])
            found = [ScoredPassage(n, math.log(p)) for n, p in scores if p and n not in hidden]
            results.append(sorted(found, key=lambda hit: -hit.score)[:k])
        return results


@pytest.mark.parametrize(("chains", "best", "score"), [(1, ("p0", "p1"), 0.6 * 0.4), (2, ("p1", "p2"), 0.36)])
def test_the_best_chain_wins_and_not_the_best_first_hop(
    small: GenerativeRetriever, chains: int, best: tuple[str, ...], score: float
) -> None:
    """0.6 * 0.4 = 0.24 begins best, 0.4 * 0.9 = 0.36 is best."""
    scripted = Scripted(small.model, small.codec, small.corpus, small.index, small.options)
    scripted.table = {
        (): (0.6, 0.4, 0.0, 0.0),
        (0,): (0.0, 0.4, 0.3, 0.3),
        (1,): (0.05, 0.0, 0.9, 0.05),
    }
    found = searching(scripted, 2, dynamic=False, chains=chains).retrieve_chains(QUERIES[:1])[0][0]
    assert (named(found), math.exp(found.score)) == (best, pytest.approx(score))


def test_done_below_the_branch_is_lifted_by_its_bias(small: GenerativeRetriever) -> None:
    """DONE is the third hit, two continue each chain: the bias counts before the two are taken."""
    scripted = Scripted(small.model, small.codec, small.corpus, small.index, small.options)
    scripted.table = {
        (): (0.9, 0.1, 0.0, 0.0),
        (0,): (0.0, 0.5, 0.3, 0.0, 0.2),
        (1,): (0.5, 0.0, 0.3, 0.0, 0.2),
    }
    for bias, best in ((0.0, ("p0", "p1")), (2.0, ("p0", "DONE"))):
        search = searching(scripted, 2, branch=2, done_bias=bias)
        assert named(search.retrieve_chains(QUERIES[:1])[0][0]) == best


def test_a_small_corpus_gives_shorter_chains_and_fewer_hits(
    large: GenerativeRetriever, tmp_path: Path
) -> None:
    tiny = over(large, ["the otter is calm .", "the lynx is quick ."], tmp_path)
    assert [len(hits) for hits in tiny.retrieve(QUERIES, 10)] == [2, 2, 2]
    for chains in searching(tiny, 5, dynamic=False, chains=4).retrieve_chains(QUERIES):
        assert {named(chain) for chain in chains} == {("p0", "p1"), ("p1", "p0")}
    for chains in searching(tiny, 5, chains=9, done_bias=-50.0).retrieve_chains(QUERIES):
        assert {len(chain.hits) for chain in chains[:2]} == {2}


def test_equal_texts_count_as_one_passage_of_a_chain(large: GenerativeRetriever, tmp_path: Path) -> None:
    tiny = over(large, ["the otter is calm .", "the otter is calm .", "the lynx is quick ."], tmp_path)
    for chains in searching(tiny, 2, dynamic=False, chains=9).retrieve_chains(QUERIES):
        assert {named(chain) for chain in chains} == {("p0", "p2"), ("p1", "p2"), ("p2", "p0"), ("p2", "p1")}


def test_queries_do_not_influence_one_another(large: GenerativeRetriever) -> None:
    search = searching(large, 3)
    together = search.retrieve_chains(QUERIES)
    for query, chains in zip(QUERIES, together, strict=True):
        (alone,) = search.retrieve_chains([query])
        assert [named(c) for c in alone] == [named(c) for c in chains]
        assert [c.score for c in alone] == pytest.approx([c.score for c in chains], abs=1e-5)


def test_bad_input_is_refused(large: GenerativeRetriever) -> None:
    for name in ("max", "chains", "branch"):
        with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
            HopOptions("dynamic", **{name: 0})
    with pytest.raises(DataError, match="query 'x' is empty"):
        searching(large).retrieve_chains([Query("x", "")])
    assert searching(large).retrieve_chains([]) == []


def test_what_was_found_for_a_chain_is_remembered_for_other_biases(
    small: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"hops": 3, "chains": 5, "branch": 4}
    expected = [
        searching(small, **given, done_bias=bias).retrieve_chains(QUERIES) for bias in (-2.0, 0.0, 2.0)
    ]
    asked: list[tuple[int, ...]] = []
    search = GenerativeRetriever.search

    def counted(
        self: GenerativeRetriever, inputs: list[np.ndarray], *more: object, **options: object
    ) -> object:
        asked.extend(tuple(some) for some in inputs)
        return search(self, inputs, *more, **options)

    monkeypatch.setattr(GenerativeRetriever, "search", counted)
    memory: Memory = {}
    for bias, chains in zip((-2.0, 0.0, 2.0), expected, strict=True):
        hops = searching(small, **given, done_bias=bias)
        hops.search.memory = memory
        found = hops.retrieve_chains(QUERIES)
        assert [[named(c) for c in some] for some in found] == [[named(c) for c in some] for some in chains]
    assert len(asked) == len(set(asked)) == len(memory)
