"""Weights of priors: what a few searches tell of all settings, and what is chosen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_data import small_retriever, write_small

from grls.data.dataset import gold_passages, read_split
from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import EmptyPromptPrior, RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.tuning import (
    ROUNDS,
    Pool,
    Quality,
    Setting,
    Tried,
    beside,
    tune_in_turn,
    tune_together,
)
from grls.retrieve.hybrid.weighted import WeightedSource
from grls.tune.dev import DevHops, DevQueries

K = 2


class _Named:
    """Stands for a source in settings alone."""

    temperature = 2.0

    def __init__(self, name: str):
        self.name = name


def start(name: str) -> WeightedSource:
    source: Any = _Named(name)
    return WeightedSource(source, 0.0)


class _Small:
    """A small generator, its dev queries and all settings of BM25 and the empty prompt."""

    def __init__(self, data: Path, spans: bool):
        self.generator: GenerativeRetriever = small_retriever(data)
        if spans:
            parts = (self.generator.model, self.generator.codec.tokenizer, self.generator.corpus)
            options = SearchOptions(beams=100, span_temperature=2.0)  # all spans there are
            self.generator = GenerativeRetriever.assemble(*parts, options=options, span_words=3)
        self.queries, qrels = read_split(data, "train")
        self.gold = [gold_passages(query, qrels) for query in self.queries]
        bm25 = WeightedSource(RetrieverPrior(BM25Retriever(self.generator.corpus)), 0.0)
        empty = WeightedSource(EmptyPromptPrior(self.generator), 0.0)
        tried = Tried((0.25, 1.0, 4.0, 16.0), (1.0, 3.0), (0.3,))
        self.choices = tried.choices([bm25], empty)
        self.pool = Pool(self.generator, self.queries, self.gold, K, self.choices)
        self.searched = 0

    def dev(self, hops: bool) -> DevHops:
        """The queries, or their hops with evidence."""
        dev = DevQueries("data", "train", self.queries, self.gold, None)
        return dev.by_hop(self.generator.corpus) if hops else dev.at_once()

    def search(self, setting: Setting) -> Quality:
        self.searched += 1
        found = HybridRetriever(self.generator, setting).candidates(self.queries, 3 * K)
        self.pool.add(setting, found)
        hits = [self.generator.hits(some[: 3 * K]) for some in found]
        ids = [[hit.id for hit in some[:K]] for some in hits]
        return Quality(sequence_recall(ids, self.gold, [K])[f"recall@{K}"], ndcg(ids, self.gold))


@pytest.fixture(params=[False, True], ids=["passages", "spans"])
def small(tmp_path: Path, request: pytest.FixtureRequest) -> _Small:
    return _Small(write_small(tmp_path / "data"), request.param)


def test_the_pool_counts_hops_as_they_are_measured(tmp_path: Path) -> None:
    """Of two gold passages a first hit is all that one hit can hold."""
    made = _Small(write_small(tmp_path / "data"), False)
    place = next(n for n, gold in enumerate(made.gold) if len(set(gold)) > 1)
    queries, gold = [made.queries[place]], [made.gold[place]]
    (number,) = made.generator.corpus.numbers(gold[0][:1])
    setting = tuple(values[0] for values in made.choices)
    for capped, recall in ((True, 1.0), (False, 1 / len(set(gold[0])))):
        pool = Pool(made.generator, queries, gold, 1, made.choices, [[]], capped)
        pool.add(setting, [[ScoredPassage(number or 0, -1.0)]])
        assert pool.quality(setting).recall == pytest.approx(recall)


@pytest.mark.parametrize("hops", [False, True], ids=["at once", "by hop"])
def test_what_one_search_finds_tells_what_another_would_give_it(small: _Small, hops: bool) -> None:
    """The scores of a second setting are those that the pool of the first one says."""
    dev = small.dev(hops)
    assert any(dev.evidence) == hops
    bm25, empty = small.choices
    first, second = (bm25[4], empty[1]), (bm25[6], empty[0])
    many = len(small.generator.corpus)  # all, so that both searches find the same
    pool = Pool(small.generator, dev.queries, dev.gold, 1, small.choices, dev.evidence)
    pool.add(first, HybridRetriever(small.generator, first).candidates(dev.queries, many, dev.evidence))
    found = HybridRetriever(small.generator, second).candidates(dev.queries, many, dev.evidence)
    weights = pool._weights(second)
    for known, hits, read in zip(pool._known, found, dev.evidence, strict=True):
        assert len(hits) == many - len({passage.id for passage in read})
        for hit in hits:
            place = known.places[hit.passage]
            promised = known.own[place] + known.logs[place] @ weights
            assert promised == pytest.approx(hit.score, abs=1e-4)


def test_a_pool_that_holds_all_promises_what_is_found(small: _Small) -> None:
    bm25, empty = small.choices
    alone = (bm25[0], empty[0])
    small.pool.add(alone, HybridRetriever(small.generator, alone).candidates(small.queries, 10_000))
    promised, measured = set(), set()
    for setting in ((one, other) for one in bm25 for other in empty):
        value = small.search(setting)
        assert small.pool.quality(setting) == pytest.approx(value)
        promised.add(round(small.pool.quality(setting).recall, 6))
        measured.add(round(value.recall, 6))
    assert len(measured) > 2  # the settings differ, so a constant would not do
    assert promised == measured


def test_few_searches_find_what_all_would(small: _Small) -> None:
    tuned = tune_together(small.choices, small.search, small.pool)
    assert small.searched < 2 * len(small.choices[0])
    bm25, empty = small.choices
    recalls = np.array([[small.search((one, other)).recall for other in empty] for one in bm25])
    every = beside(recalls)
    assert every.min() < 0.8 * every.max()
    place = bm25.index(tuned.priors[0]), empty.index(tuned.priors[1])
    level = recalls[every >= every.max() - 1e-9]  # of equal recalls neighbours do not decide
    assert recalls[place] in level
    assert small.search(tuned.priors).recall == pytest.approx(tuned.recall)


class _Promises:
    """A pool that says of each setting what it is told to."""

    def __init__(self, says: Any):
        self.quality = lambda setting: Quality(says(setting))


def test_the_most_promising_is_searched_with_until_it_has_been() -> None:
    choices = Tried((1.0, 2.0, 3.0)).choices([start("a")], start("e"))
    asked: list[float] = []

    def measure(setting: Setting) -> Quality:
        asked.append(setting[0].weight)
        return Quality({0.0: 0.1, 1.0: 0.6, 2.0: 0.3, 3.0: 0.3}[setting[0].weight])

    # 1 is promised the most, and 0.6 when it has been searched with.
    pool: Any = _Promises(lambda setting: {1.0: 0.9 if 1.0 not in asked else 0.6}.get(setting[0].weight, 0.3))
    tuned = tune_together(choices, measure, pool)
    assert asked == [0.0, 2.0, 3.0, 1.0]
    assert (tuned.priors[0].weight, tuned.recall) == (1.0, 0.6)


def test_search_goes_on_as_long_as_promises_are_broken() -> None:
    """Each setting that is searched with turns out to be worth nothing."""
    choices = Tried(tuple(float(n) for n in range(1, 41))).choices([start("a")], start("e"))
    asked: list[float] = []

    def measure(setting: Setting) -> Quality:
        asked.append(setting[0].weight)
        return Quality(0.0)

    pool: Any = _Promises(lambda setting: 1.0)
    tune_together(choices, measure, pool)
    assert len(asked) == len(set(asked)) == 3 + ROUNDS


def test_what_was_promised_too_much_is_not_chosen_and_ties_go_to_the_smaller_weight() -> None:
    choices = Tried((1.0, 2.0, 3.0)).choices([start("a")], start("e"))
    pool: Any = _Promises(lambda setting: float(setting[0].weight == 1))
    tuned = tune_together(choices, lambda setting: Quality(0.0 if setting[0].weight < 2 else 0.5), pool)
    assert tuned.priors[0].weight >= 2
    assert tuned.recall == 0.5
    pool = _Promises(lambda _: 0.5)
    assert tune_together(choices, lambda _: Quality(0.5), pool).priors[0].weight == 0  # it helps at no weight


def test_weights_that_are_as_good_within_the_error_give_way_to_the_lightest_that_a_search_confirms() -> None:
    choices = Tried((1.0, 2.0, 3.0)).choices([start("a")], start("e"))
    found = {0.0: 0.1, 1.0: 0.8, 2.0: 0.85, 3.0: 0.9}
    pool: Any = _Promises(lambda setting: found[setting[0].weight])
    pool.as_good = lambda setting, best: found[setting[0].weight] >= found[best[0].weight] - 0.11

    def measure(setting: Setting) -> Quality:
        return Quality(found[setting[0].weight])

    assert tune_together(choices, measure, pool).priors[0].weight == 3.0
    assert tune_together(choices, measure, pool, lightest=True) == ((choices[0][1], choices[1][0]), 0.8)
    pool.as_good = lambda setting, best: (
        setting == best or (setting[0].weight == 1 and found[1.0] > 0.7)
    )  # promised, and not kept

    def broken(setting: Setting) -> Quality:
        if setting[0].weight == 1:
            found[1.0] = 0.2
        return measure(setting)

    assert tune_together(choices, broken, pool, lightest=True).priors[0].weight == 3.0


def test_as_good_is_within_the_standard_error_of_the_paired_differences(tmp_path: Path) -> None:
    made = _Small(write_small(tmp_path / "data"), False)
    alone = tuple(values[0] for values in made.choices)
    made.search(alone)
    right = np.zeros((len(made.queries), 2, K))
    made.pool._right_of = lambda setting: right[:, 0 if setting == alone else 1]  # type: ignore[method-assign]
    best = (made.choices[0][1], made.choices[1][0])
    assert made.pool.as_good(alone, best)
    right[0, 1, 0] = 1.0  # one query more is within the error
    assert made.pool.as_good(alone, best)
    right[: len(right) // 2, 1, 0] = 1.0
    assert not made.pool.as_good(alone, best)
    assert made.pool.as_good(best, alone)


def test_luck_that_does_not_extend_to_neighbours_is_not_chosen() -> None:
    """A peak between two valleys loses to a plateau that is a little lower."""
    found = dict(zip((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0.1, 0.6, 0.1, 0.4, 0.5, 0.4, 0.1), strict=True))
    choices = Tried(tuple(found)[1:]).choices([start("a")], start("e"))
    pool: Any = _Promises(lambda setting: found[setting[0].weight])
    tuned = tune_together(choices, lambda setting: Quality(found[setting[0].weight]), pool)
    assert tuned.priors[0].weight == 4.0


def test_of_equal_recalls_the_order_decides_and_then_the_smaller_weight_not_the_edge() -> None:
    """An edge of the grid has fewer neighbours, whose mean may be the higher one by that alone."""
    choices = Tried((1.0, 2.0, 4.0)).choices([start("a"), start("b")], start("e"))
    recall = {(2.0, 1.0): 0.9, (4.0, 0.0): 0.9, (4.0, 1.0): 0.8, (2.0, 0.0): 0.8}

    def weights(setting: Setting) -> tuple[float, float]:
        return setting[0].weight, setting[1].weight

    pool: Any = _Promises(lambda setting: recall.get(weights(setting), 0.1))
    for order in ({(2.0, 1.0): 0.7, (4.0, 0.0): 0.6}, {}):
        tuned = tune_together(
            choices,
            lambda setting, order=order: Quality(
                recall.get(weights(setting), 0.1), order.get(weights(setting), 0.0)
            ),
            pool,
        )
        assert weights(tuned.priors) == (2.0, 1.0)


def test_the_mean_is_over_what_is_there() -> None:
    assert beside(np.array([[1.0, 2.0, 6.0]])).tolist() == [[1.5, 2.75, 4.0]]
    assert beside(np.array([[1.0, 2.0], [3.0, 8.0]])).tolist() == [[1.75, 3.25], [3.75, 5.25]]
    assert beside(np.array([[1.0]])).tolist() == [[1.0]]


def test_too_large_a_grid_is_refused_before_anything_is_searched() -> None:
    weights = tuple(float(n) for n in range(1, 40))
    choices = Tried(weights).choices([start(name) for name in "abc"], start("e"))
    pool: Any = None
    with pytest.raises(ConfigError, match="40 x 40 x 40 x 1 settings of the priors are 64,000"):
        tune_together(choices, lambda _: Quality(1 / 0), pool)


def test_one_prior_after_another_is_tuned_and_ties_go_to_the_smaller_weight() -> None:
    seen = []

    def measure(priors: Sequence[WeightedSource]) -> Quality:
        a, b, empty = priors
        seen.append((a.weight, a.divisor, b.weight, empty.weight))
        right = a.weight == 1 and a.divisor == 4
        return Quality(right + min(b.weight / b.divisor, 1) - 10 * abs(empty.weight + 0.2))

    tried = Tried((1.0, 2.0, 3.0), (1.0, 2.0), (0.1, 0.2))
    tuned = tune_in_turn(tried.choices([start("a"), start("b")], start("e")), measure)
    assert [(p.weight, p.divisor) for p in tuned.priors] == [(1.0, 4.0), (2.0, 2.0), (-0.2, 2.0)]
    assert tuned.recall == pytest.approx(2.0)
    assert len(seen) == 1 + 6 + 6 + 2
    assert seen[1:3] == [(1.0, 4.0, 0.0, 0.0), (1.0, 2.0, 0.0, 0.0)]  # what counts less first
    assert {setting[:2] for setting in seen[7:]} == {(1.0, 4.0)}  # the first one stays at its best


def test_a_prior_that_never_helps_gets_no_weight() -> None:
    choices = Tried((1.0,), (1.0,), (0.1,)).choices([start("a")], start("e"))
    tuned = tune_in_turn(choices, lambda _: Quality(0.5))
    assert ([p.weight for p in tuned.priors], tuned.recall) == ([0.0, 0.0], 0.5)
    higher = tune_in_turn(choices, lambda setting: Quality(0.5, setting[0].weight))
    assert [p.weight for p in higher.priors] == [1.0, 0.0]
