"""Chains as a plain ranking: their order, what is filled up, and filters."""

import pytest

from grls.data.corpus import Corpus
from grls.data.filters import Only
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever

CORPUS = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdef"])
QUERIES = [Query("q1", "one"), Query("q2", "two")]


class Chains:
    def __init__(self, chains):
        self.chains, self.allow = chains, []

    def retrieve_chains(self, queries, allow=None):
        self.allow.append(allow)
        return [
            [Chain(tuple(Hit(i, -1.0) for i in c), -1.0, True) for c in self.chains[q.id]] for q in queries
        ]


class Single:
    kind, corpus = "single", CORPUS

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def retrieve(self, queries, k, allow=None):
        self.asked.append(([query.id for query in queries], k, allow))
        return [[Hit(i, 9.0) for i in self.answers[query.id][:k]] for query in queries]


def hops(chains: Chains, single: Single, steps: str) -> HopsRetriever:
    made = HopsRetriever(single, HopOptions("fixed", 2))
    made.hops, made.search = HopOptions(steps, 2), chains
    return made


def test_the_best_chain_comes_first_and_a_passage_once() -> None:
    found = hops(Chains({"q1": ["cb", "ca"], "q2": ["f"]}), Single({}), "dynamic").retrieve(QUERIES, 3)
    assert found == [[Hit("c", 1.0), Hit("b", 1 / 2), Hit("a", 1 / 3)], [Hit("f", 1.0)]]
    with pytest.raises(ConfigError, match="k must be"):
        hops(Chains({}), Single({}), "dynamic").retrieve([], 0)


def test_what_is_missing_is_found_in_a_single_step() -> None:
    single, chains = Single({"q2": "dfe"}), Chains({"q1": ["cb"], "q2": ["f"]})
    allow = [{"b", "c"}, {"d", "e", "f"}]
    found = hops(chains, single, "fixed").retrieve(QUERIES, 2, allow)
    assert [[hit.id for hit in hits] for hits in found] == [["c", "b"], ["f", "d"]]
    assert [hit.score for hit in found[1]] == [1.0, 1 / 2]
    ((asked, k, (own,)),) = single.asked
    assert (asked, k, own) == (["q2"], 2, Only(frozenset("def")))  # the query's own filter
    assert chains.allow == [allow]
