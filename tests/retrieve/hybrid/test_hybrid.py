"""Hybrid decoding: what priors say, what is found hop by hop, what is refused, and tuning of the weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from score_all import score_all
from small_data import queries, scratch, small_retriever, write_small

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.data.types import Passage, Query
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics import means, sequence_recall
from grls.identifiers.spans import Spans
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.base import ChainToContinue
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid import priors
from grls.retrieve.hybrid.priors import WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.tune.priors import Pool, Setting, beside, prior_choices, tune_in_turn, tune_together
from grls.tune.step import DevQueries, Quality

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]
NONE: list[tuple[Passage, ...]] = [(), ()]


@pytest.fixture(scope="module")
def generator(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=20)


@pytest.fixture(scope="module")
def dense(biencoder: BiEncoderModel, corpus: Corpus) -> DenseRetriever:
    return DenseRetriever.assemble(biencoder, corpus)


@pytest.fixture(scope="module")
def bm25(corpus: Corpus) -> BM25Retriever:
    return BM25Retriever(corpus)


def log_softmax(scores: Sequence[float]) -> np.ndarray:
    values = np.array(scores, dtype=np.float64)
    return values - values.max() - np.log(np.exp(values - values.max()).sum())


def given_all(scores: dict[str, float], generator: GenerativeRetriever) -> list[float]:
    return [scores.get(passage.id, 0.0) for passage in generator.corpus]


def test_scores_are_those_of_the_formula(
    generator: GenerativeRetriever, dense: DenseRetriever, bm25: BM25Retriever
) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(dense, 0.5, 10.0), WeightedSource(bm25, 0.25)])
    count = len(generator.corpus)
    for query, hits in zip(QUERIES, hybrid.retrieve(QUERIES, count), strict=True):
        alone = {h.id: h.score for h in generator.retrieve([query], count)[0]}
        inner = {h.id: h.score / 10.0 for h in dense.retrieve([query], count)[0]}
        words = {h.id: h.score / 2.0 for h in bm25.retrieve([query], count)[0]}
        expected = (
            np.array(given_all(alone, generator))
            + 0.5 * log_softmax(given_all(inner, generator))
            + 0.25 * log_softmax(given_all(words, generator))
        )
        assert len(hits) == count
        found = given_all({h.id: h.score for h in hits}, generator)
        assert found == pytest.approx(expected.tolist(), abs=1e-3)
        assert [h.score for h in hits] == sorted(found, reverse=True)


def test_evidence_reaches_generator_and_priors(
    generator: GenerativeRetriever, dense: DenseRetriever, bm25: BM25Retriever
) -> None:
    passage = next(iter(generator.corpus))
    for source in (dense, bm25):
        before = source.scores(QUERIES, NONE)(np.array([0, 1]))
        after = source.scores(QUERIES, [(), (passage,)])(np.array([0, 1]))
        assert before.shape == after.shape == (2, len(generator.corpus))
        assert before[0] == pytest.approx(after[0], abs=1e-5)
        assert np.abs(before[1] - after[1]).max() > 1e-3
    hybrid = HybridRetriever(generator, [WeightedSource(bm25, 0.0)])
    first, second = (hybrid.retrieve_hop(QUERIES[1:], some, 3) for some in ([()], [(passage,)]))
    assert first != second


def test_done_has_its_share_unless_the_prior_knows_it(
    generator: GenerativeRetriever, dense: DenseRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(generator.corpus)
    inputs = generator.codec.model_input(generator.encode(QUERIES[:1])[0])
    alone = score_all(generator.decoder(1).generator, generator.index, inputs)
    hybrid = HybridRetriever(generator, [WeightedSource(dense, 0.5, 10.0)])
    done = hybrid.retrieve_hop(QUERIES[:1], NONE[:1], count)[0].done
    assert done == pytest.approx(alone[-1] + 0.5 * np.log(0.5), abs=1e-3)
    monkeypatch.setattr(dense.encoder, "learned_done", True)
    source = dense
    assert source.scores_done
    scores = source.scores(QUERIES[:1], NONE[:1])(np.array([0]))[0]
    assert len(scores) == count + 1
    step = HybridRetriever(generator, [WeightedSource(source, 0.5, 10.0)]).retrieve_hop(
        QUERIES[:1], NONE[:1], count
    )
    assert step[0].done == pytest.approx(alone[-1] + 0.5 * log_softmax(scores / 10)[-1], abs=1e-3)


def test_done_that_fell_out_of_the_beam_is_not_known(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priors, "DONE_SHARE", -500.0 / 1e-3)
    narrow = small_retriever(data, beams=2)
    prior = WeightedSource(BM25Retriever(narrow.corpus), 1e-3)
    steps = HybridRetriever(narrow, [prior]).retrieve_hop(QUERIES, NONE, 1)
    assert [(len(step.hits), step.done) for step in steps] == [(1, None), (1, None)]


def test_a_model_without_slots_takes_the_plain_search(
    generator: GenerativeRetriever, bm25: BM25Retriever, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = queries()
    expected = HybridRetriever(generator, [WeightedSource(bm25, 1.0)]).retrieve(every, 3)
    plain = small_retriever(data, beams=20, batch_size=3)
    plain.trees = None
    found = HybridRetriever(plain, [WeightedSource(bm25, 1.0)]).retrieve(every, 3)
    for some, others in zip(found, expected, strict=True):
        assert [hit.score for hit in some] == pytest.approx([hit.score for hit in others], abs=1e-4)


def test_chains_beside_normalized_priors_have_log_probabilities(
    generator: GenerativeRetriever, dense: DenseRetriever
) -> None:
    """Hop by hop what the search finds; a sum over chains of all first hops is one."""
    weighed = [WeightedSource(dense, 0.5)]
    hybrid = HybridRetriever(generator, weighed, normalized=True)
    count = len(generator.corpus)
    search = HopsRetriever(hybrid, HopOptions("dynamic", 2, chains=count, branch=count, done_bias=0.0))
    for query, chains in zip(QUERIES, search.retrieve_chains(QUERIES), strict=True):
        assert chains[0].score == max(chain.score for chain in chains)
        chain = chains[0]
        done = generator.done
        (first,) = hybrid.search([query], [()], count, [[done]])
        scores = {generator.corpus.ids([f.passage])[0]: f.score for f in first}
        assert sum(np.exp(list(scores.values()))) == pytest.approx(1, abs=1e-4)
        taken = generator.corpus.numbers([chain.hits[0].id])
        evidence = [generator.corpus.passages([n for n in taken if n is not None])]
        (second,) = hybrid.search([query], evidence, count + 1, [[n for n in taken if n is not None]])
        following = {f.passage: f.score for f in second}
        last = done if chain.done else generator.corpus.numbers([chain.hits[1].id])[0]
        assert last is not None
        assert chain.score == pytest.approx(scores[chain.hits[0].id] + following[last], abs=1e-4)
    assert not HopsRetriever(HybridRetriever(generator, weighed), HopOptions("dynamic")).probable
    allowed = search.retrieve_chains(QUERIES, ["otter-calm", "lynx-quick"])
    assert {h.id for some in allowed for chain in some for h in chain.hits} == {"otter-calm", "lynx-quick"}


QUERY = Query("q", "is the otter kind ?")


@pytest.fixture(scope="module")
def short(data: Path) -> GenerativeRetriever:
    model, tokenizer = scratch(data).load()
    return GenerativeRetriever.assemble(model.eval(), tokenizer, Corpus.read(data), Limits(evidence=2))


def expected_input(short: GenerativeRetriever) -> list[int]:
    rows = short.codec.excerpts(QUERY.text, short.corpus.passages([1]))
    assert len(rows[0]) < len(short.sequences([1])[0])
    return short.codec.model_input(short.encode([QUERY])[0], rows)


def test_hops_read_excerpts_and_a_folder_keeps_their_limit(
    short: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inputs: list[Any] = []

    def search(given: list[list[int]], k: int, *rest: Any, **more: Any) -> list[list[Any]]:
        inputs.append(given)
        return [[] for _ in given]

    monkeypatch.setattr(short, "search", search)
    short.next_hop([QUERY], None)([ChainToContinue(0, (1,), (1,))], 1, 2)
    HybridRetriever(short, []).next_hop([QUERY], None)([ChainToContinue(0, (1,), (1,))], 1, 2)
    assert inputs == [[expected_input(short)], [expected_input(short)]]
    short.save_pretrained(tmp_path / "r")
    opened = GenerativeRetriever.from_pretrained(tmp_path / "r", device="cpu")
    assert opened.codec.limits.evidence == 2
    assert opened.fingerprint() == short.fingerprint()


K = 2


class _Named:
    temperature = 2.0

    def __init__(self, kind: str):
        self.kind = kind


def start(name: str) -> WeightedSource:
    source: Any = _Named(name)
    return WeightedSource(source, 0.0)


class _Small:
    """A small generator, its dev queries and all settings of BM25 and a bi-encoder."""

    def __init__(self, data: Path, spans: bool, biencoder: BiEncoderModel):
        self.generator: GenerativeRetriever = small_retriever(data)
        if spans:
            parts = (self.generator.model, self.generator.codec.tokenizer, self.generator.corpus)
            options = SearchOptions(beams=100, span_temperature=2.0)  # all spans there are
            self.generator = GenerativeRetriever.assemble(*parts, options=options, kind=Spans(3))
        self.queries, qrels = read_split(data, "train")
        self.gold = [gold_passages(query, qrels) for query in self.queries]
        bm25 = WeightedSource(BM25Retriever(self.generator.corpus), 0.0)
        dense = WeightedSource(DenseRetriever.assemble(biencoder, self.generator.corpus), 0.0)
        self.choices = [
            *prior_choices([bm25], (0.1, 0.25, 1.0, 4.0, 16.0)), *prior_choices([dense], (0.3,))
        ]  # fmt: skip
        self.pool = Pool(self.generator, self.queries, self.gold, K, self.choices)
        self.searched = 0

    def dev(self, hops: bool) -> DevQueries:
        dev = DevQueries(self.queries, self.gold)
        return dev.by_hop(self.generator.corpus) if hops else dev

    def search(self, setting: Setting) -> Quality:
        self.searched += 1
        found = HybridRetriever(self.generator, setting).candidates(self.queries, 3 * K)
        self.pool.add(setting, found)
        hits = [self.generator.hits(some[: 3 * K]) for some in found]
        ids = [[hit.id for hit in some[:K]] for some in hits]
        return Quality(means(sequence_recall, ids, self.gold, ks=[K])[f"recall@{K}"], ndcg(ids, self.gold))


@pytest.fixture(params=[False, True], ids=["passages", "spans"])
def small(tmp_path: Path, biencoder: BiEncoderModel, request: pytest.FixtureRequest) -> _Small:
    return _Small(write_small(tmp_path / "data"), request.param, biencoder)


def test_a_pool_that_holds_all_promises_what_is_found(small: _Small) -> None:
    bm25, dense = small.choices
    alone = (bm25[0], dense[0])
    small.pool.add(alone, HybridRetriever(small.generator, alone).candidates(small.queries, 10_000))
    promised, measured = set(), set()
    for setting in ((one, other) for one in bm25 for other in dense):
        value = small.search(setting)
        assert small.pool.quality(setting) == pytest.approx(value)
        promised.add(round(small.pool.quality(setting).recall, 6))
        measured.add(round(value.recall, 6))
    assert len(measured) > 2  # the settings differ, so a constant would not do
    assert promised == measured


def test_few_searches_find_what_all_would(small: _Small) -> None:
    tuned = tune_together(small.choices, small.search, small.pool)
    assert small.searched < 2 * len(small.choices[0])
    bm25, dense = small.choices
    recalls = np.array([[small.search((one, other)).recall for other in dense] for one in bm25])
    every = beside(recalls)
    assert every.min() < 0.8 * every.max()
    place = bm25.index(tuned.priors[0]), dense.index(tuned.priors[1])
    level = recalls[every >= every.max() - 1e-9]  # of equal recalls neighbours do not decide
    assert recalls[place] in level
    assert small.search(tuned.priors).recall == pytest.approx(tuned.recall)


class _Promises:
    def __init__(self, says: Any):
        self.quality = lambda setting: Quality(says(setting))


def test_what_was_promised_too_much_is_not_chosen_and_ties_go_to_the_smaller_weight() -> None:
    choices = prior_choices([start("a")], (1.0, 2.0, 3.0))
    pool: Any = _Promises(lambda setting: float(setting[0].weight == 1))
    tuned = tune_together(choices, lambda setting: Quality(0.0 if setting[0].weight < 2 else 0.5), pool)
    assert tuned.priors[0].weight >= 2
    assert tuned.recall == 0.5
    pool = _Promises(lambda _: 0.5)
    assert tune_together(choices, lambda _: Quality(0.5), pool).priors[0].weight == 0  # it helps at no weight


def test_weights_that_are_as_good_within_the_error_give_way_to_the_lightest_that_a_search_confirms() -> None:
    choices = prior_choices([start("a")], (1.0, 2.0, 3.0))
    found = {0.0: 0.1, 1.0: 0.8, 2.0: 0.85, 3.0: 0.9}
    pool: Any = _Promises(lambda setting: found[setting[0].weight])
    pool.as_good = lambda setting, best: found[setting[0].weight] >= found[best[0].weight] - 0.11

    def measure(setting: Setting) -> Quality:
        return Quality(found[setting[0].weight])

    assert tune_together(choices, measure, pool).priors[0].weight == 3.0
    assert tune_together(choices, measure, pool, lightest=True) == ((choices[0][1],), 0.8)
    pool.as_good = lambda setting, best: (
        setting == best or (setting[0].weight == 1 and found[1.0] > 0.7)
    )  # promised, and not kept

    def broken(setting: Setting) -> Quality:
        if setting[0].weight == 1:
            found[1.0] = 0.2
        return measure(setting)

    assert tune_together(choices, broken, pool, lightest=True).priors[0].weight == 3.0


def test_luck_that_does_not_extend_to_neighbours_is_not_chosen() -> None:
    """A peak between two valleys loses to a plateau that is a little lower."""
    found = dict(zip((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0.1, 0.6, 0.1, 0.4, 0.5, 0.4, 0.1), strict=True))
    choices = prior_choices([start("a")], tuple(found)[1:])
    pool: Any = _Promises(lambda setting: found[setting[0].weight])
    tuned = tune_together(choices, lambda setting: Quality(found[setting[0].weight]), pool)
    assert tuned.priors[0].weight == 4.0


def test_of_equal_recalls_the_order_decides_and_then_the_smaller_weight_not_the_edge() -> None:
    """An edge of the grid has fewer neighbours, whose mean may be the higher one by that alone."""
    choices = prior_choices([start("a"), start("b")], (1.0, 2.0, 4.0))
    recall = {(2.0, 1.0): 0.9, (4.0, 0.0): 0.9, (4.0, 1.0): 0.8, (2.0, 0.0): 0.8}

    def weights(setting: Setting) -> tuple[float, float]:
        return setting[0].weight, setting[1].weight

    pool: Any = _Promises(lambda setting: recall.get(weights(setting), 0.1))
    for order in ({(2.0, 1.0): 0.7, (4.0, 0.0): 0.6}, {}):
        tuned = tune_together(
            choices, lambda setting,
            order=order: Quality(recall.get(weights(setting), 0.1), order.get(weights(setting), 0.0)),
            pool,
        )  # fmt: skip
        assert weights(tuned.priors) == (2.0, 1.0)


def test_one_prior_after_another_is_tuned_and_ties_go_to_the_smaller_weight() -> None:
    seen = []

    def measure(priors: Sequence[WeightedSource]) -> Quality:
        a, b = priors
        seen.append((a.weight, b.weight))
        return Quality((a.weight == 1) + min(b.weight / 2, 1))

    choices = prior_choices([start("a"), start("b")], (3.0, 2.0, 1.0))
    tuned = tune_in_turn(choices, measure)
    assert [prior.weight for prior in tuned.priors] == [1.0, 2.0]
    assert tuned.recall == pytest.approx(2.0)
    assert len(seen) == 1 + 3 + 3
    assert seen[1:3] == [(1.0, 0.0), (2.0, 0.0)]  # what counts less first
    assert {setting[0] for setting in seen[4:]} == {1.0}  # the first one stays at its best
