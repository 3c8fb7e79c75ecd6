"""Multi-step retrieval for text retrievers, and the ranking of several chains."""

from collections.abc import Sequence
from typing import Any

import pytest

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.retrieve.base import HopHits
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, pooled_ranking
from grls.retrieve.hops.stop import DoneByScore, StopRule

PASSAGES = [
    Passage("empty", "!"),
    Passage("p1", "green frogs eat flies"),
    Passage("p2", "flies live near ponds", title="Insects"),
    Passage("p3", "ponds hold green green water and frogs"),
    Passage("p4", "stone walls"),
    Passage("p5", "stone walls"),
]
CORPUS = Corpus.from_passages(PASSAGES)
LETTERS = Corpus.from_passages(Passage(name, f"text of {name}") for name in "abc")


class WordOverlap:
    """Counts shared words and keeps what it was asked."""

    corpus = CORPUS

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        self.asked.append([query.text for query in queries])
        return [self._top(set(query.text.split()), k) for query in queries]

    def _top(self, words: set[str], k: int) -> list[Hit]:
        scored = [Hit(p.id, float(len(words & set(p.text.split())))) for p in PASSAGES]
        return sorted((hit for hit in scored if hit.score), key=lambda hit: -hit.score)[:k]


class Scripted:
    """Scores of a table: ids of the chain so far -> scores of a, b, c, and of DONE."""

    kind, corpus = "scripted", LETTERS
    learned_done: bool | None = True

    def __init__(self, table: dict[str, dict[str, float]]):
        self.table = table
        self.asked: list[str] = []

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        return [step.hits for step in self.retrieve_hop(queries, [()] * len(queries), k)]

    def retrieve_hop(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        allow: Allow = None,
    ) -> list[HopHits]:
        assert all(query.text == "?" for query in queries)  # evidence comes as such
        chains = ["".join(passage.id for passage in some) for some in evidence]
        self.asked += chains
        return [self._step(self.table[chain], k) for chain in chains]

    def _step(self, scores: dict[str, float], k: int) -> HopHits:
        hits = sorted((Hit(*pair) for pair in scores.items()), key=lambda hit: -hit.score)
        done = next((hit.score for hit in hits if hit.id == "DONE"), -9.0)
        return HopHits([hit for hit in hits if hit.id != "DONE"][:k], done)


def named(chain: Chain) -> str:
    return "".join(hit.id for hit in chain.hits) + ("." if chain.done else "")


class Later(DoneByScore):
    """DONE may come after so many hops."""

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
    made = appending(Scripted(table), hops, **options)
    made.search.stop = stop or made.search.stop
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


def test_the_title_joins_the_query_too() -> None:
    retriever = WordOverlap()
    best(retriever, 2, [Query("q", "near")])
    assert retriever.asked[1] == ["near Insects flies live near ponds"]


def test_bm25_goes_hop_by_hop() -> None:
    walls, none = best(BM25Retriever(CORPUS), 10, [Query("q1", "Insects"), Query("q2", "zebra")])
    assert [hit.id for hit in walls.hits] == ["p2", "p1", "p3"]
    assert none == ((), 0, False)


TURNING = {
    "": {"a": 0.6, "b": 0.5, "c": 0.1},
    "a": {"a": 0.9, "b": 0.2, "c": 0.3},
    "b": {"a": 0.4, "b": 0.9, "c": 0.7},
    "c": {"a": 0.1, "b": 0.1, "c": 0.9},
}
"""a begins best, b then c is best: 0.6 + 0.3 against 0.5 + 0.7."""


def test_the_best_chain_wins_and_not_the_best_first_hop() -> None:
    assert [named(chain) for chain in scripted(TURNING, 2)] == ["ac"]
    (best, second) = scripted(TURNING, 2, chains=2, branch=2)
    assert (named(best), best.score) == ("bc", pytest.approx(1.2))
    assert best.hits == (Hit("b", 0.5), Hit("c", 0.7))
    assert named(second) in ("ac", "ba")


def test_wide_beams_find_every_chain() -> None:
    chains = scripted(TURNING, 2, chains=9, branch=3)
    assert {named(chain): round(chain.score, 6) for chain in chains} == {
        "ab": 0.8, "ac": 0.9, "ba": 0.9, "bc": 1.2, "ca": 0.2, "cb": 0.2,
    }  # fmt: skip
    assert [chain.score for chain in chains] == sorted((chain.score for chain in chains), reverse=True)


def test_a_passage_comes_twice_only_where_that_is_allowed() -> None:
    assert [named(chain) for chain in scripted(TURNING, 2, repeat=True)] == ["aa"]


def test_only_branch_passages_continue_a_chain() -> None:
    assert {named(chain) for chain in scripted(TURNING, 2, chains=9, branch=1)} == {"ac"}


ENDING = {
    "": {"a": 0.6, "b": 0.5, "c": 0.1, "DONE": 0.9},
    "a": {"b": 0.4, "c": 0.3, "DONE": 0.35},
    "b": {"a": 0.2, "c": 0.1, "DONE": 0.8},
    "ab": {"c": 0.1, "DONE": 0.3},
    "ba": {"c": 0.1, "DONE": 0.3},
    "abc": {"DONE": -5.0},
}


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
    retriever = Scripted(ENDING)
    search = appending(retriever, 5, dynamic=True, chains=2, branch=2)
    search.retrieve_chains([Query("q", "?")])
    assert retriever.asked == ["", "a", "b", "ab", "ba"]  # abc and bac could go on, two others have ended


def test_queries_do_not_influence_one_another() -> None:
    queries = [
        Query("q1", "eat flies"),
        Query("q2", "stone"),
        Query("q3", "zebra"),
        Query("q4", "near ponds"),
    ]
    search = appending(WordOverlap(), 3, chains=3, branch=2)
    together = search.retrieve_chains(queries)
    assert together == [search.retrieve_chains([query])[0] for query in queries]
    assert together[2] == [Chain((), 0.0, False)]
    assert search.retrieve_chains([]) == []


@pytest.mark.parametrize(("learned", "dynamic", "warns"), [
    (False, True, True), (False, False, False), (True, True, False), (None, True, False),
])  # fmt: skip
def test_a_done_that_was_never_learned_is_warned_of(
    learned: bool | None, dynamic: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = Scripted({"": {"a": 2.0, "DONE": 1.0}, "a": {"b": 1.0, "DONE": 2.0}})
    retriever.learned_done = learned
    appending(retriever, 2, dynamic).retrieve_chains([Query("q", "?"), Query("r", "?")])
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warns  # once, whatever is asked
    assert all("not trained with DONE" in m and "fit.done" in m for m in messages)


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="bm25 never writes DONE"):
        appending(BM25Retriever(CORPUS), 2, dynamic=True)
    astray = WordOverlap()
    astray.corpus = LETTERS
    with pytest.raises(MismatchError, match="not in corpus"):
        best(astray, 2, [Query("q", "stone")])


def test_pooling_takes_the_chains_in_order_and_each_passage_once() -> None:
    chains = [
        Chain((Hit("a", 1.0), Hit("b", 9.0)), 10.0, False),
        Chain((Hit("b", 8.0), Hit("c", 1.0)), 9.0, False),
        Chain((Hit("d", 7.0), Hit("a", 1.0)), 8.0, True),
    ]
    assert pooled_ranking(chains, 10) == [Hit("a", 1.0), Hit("b", 1 / 2), Hit("c", 1 / 3), Hit("d", 1 / 4)]
    assert [hit.id for hit in pooled_ranking(chains, 3)] == ["a", "b", "c"]
    assert pooled_ranking([], 3) == []
