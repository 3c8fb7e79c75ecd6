"""Hybrid decoding with real retrievers: what priors say, what is found, hop by hop, and what is refused."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from small_data import queries, small_retriever, tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode import DeviceDecoder
from grls.decode.score_all import score_all
from grls.errors import ConfigError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.base import TakesEvidence
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative import search
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.options import DONE_SHARE
from grls.retrieve.hybrid.priors import EmptyPromptPrior, PriorSource, Remembering, RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]
NONE: list[tuple[Passage, ...]] = [(), ()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("hybrid") / "data")


@pytest.fixture(scope="module")
def generator(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=20)


@pytest.fixture(scope="module")
def dense(data: Path, tmp_path_factory: pytest.TempPathFactory) -> DenseRetriever:
    torch.manual_seed(0)
    biencoder = BiEncoderModel.load(
        str(tiny_bert(tmp_path_factory.mktemp("bert"))), device="cpu", similarity="dot"
    )
    return DenseRetriever.assemble(biencoder, Corpus.read(data))


@pytest.fixture(scope="module")
def bm25(data: Path) -> BM25Retriever:
    return BM25Retriever(Corpus.read(data))


def log_softmax(scores: Sequence[float]) -> np.ndarray:
    values = np.array(scores, dtype=np.float64)
    return values - values.max() - np.log(np.exp(values - values.max()).sum())


def given_all(scores: dict[str, float], generator: GenerativeRetriever) -> list[float]:
    return [scores.get(passage.id, 0.0) for passage in generator.corpus]


def test_scores_are_those_of_the_formula(
    generator: GenerativeRetriever, dense: DenseRetriever, bm25: BM25Retriever
) -> None:
    """Every passage is found, so each has what the generator and what each retriever's own scores say."""
    empty = EmptyPromptPrior(generator)
    hybrid = HybridRetriever(
        generator,
        [
            WeightedSource(RetrieverPrior(dense), 0.5, 10.0),
            WeightedSource(RetrieverPrior(bm25), 0.25),
            WeightedSource(empty, -0.4),
        ],
    )
    count = len(generator.corpus)
    nothing = np.array(
        score_all(generator.decoder(1).generator, generator.index, generator.codec.model_input([]))
    )
    for query, hits in zip(QUERIES, hybrid.retrieve(QUERIES, count), strict=True):
        alone = {h.id: h.score for h in generator.retrieve([query], count)[0]}
        inner = {h.id: h.score / 10.0 for h in dense.retrieve([query], count)[0]}
        words = {h.id: h.score / 2.0 for h in bm25.retrieve([query], count)[0]}
        expected = (
            np.array(given_all(alone, generator))
            + 0.5 * log_softmax(given_all(inner, generator))
            + 0.25 * log_softmax(given_all(words, generator))
            - 0.4 * log_softmax(nothing[:-1])
        )
        assert len(hits) == count
        found = given_all({h.id: h.score for h in hits}, generator)
        assert found == pytest.approx(expected.tolist(), abs=1e-3)
        assert [h.score for h in hits] == sorted(found, reverse=True)


def test_temperatures_are_those_of_training(dense: DenseRetriever, bm25: BM25Retriever) -> None:
    assert RetrieverPrior(dense).temperature == 1.0
    unit = dense.rows / np.linalg.norm(dense.rows, axis=1, keepdims=True)
    assert RetrieverPrior(DenseRetriever(dense.encoder, dense.corpus, unit)).temperature == 0.05
    assert WeightedSource(RetrieverPrior(bm25), 1.0).divisor == 2.0
    assert WeightedSource(RetrieverPrior(bm25), 1.0, 3.0).divisor == 3.0


def test_without_weight_it_is_the_generator(generator: GenerativeRetriever, bm25: BM25Retriever) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 0.0)])
    assert hybrid.retrieve(QUERIES, 5) == generator.retrieve(QUERIES, 5)


def test_with_great_weight_it_is_the_prior(generator: GenerativeRetriever, bm25: BM25Retriever) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 500.0)])
    everything = queries()
    for found, words in zip(hybrid.retrieve(everything, 1), bm25.retrieve(everything, 20), strict=True):
        best = {hit.id for hit in words if hit.score > words[0].score - 1e-3}
        assert found[0].id in best


def test_filters_hold(generator: GenerativeRetriever, bm25: BM25Retriever) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 1.0)])
    allowed = ["lynx-calm", "r0", "otter-quick"]
    for hits in hybrid.retrieve(QUERIES, 5, allow=allowed):
        assert sorted(hit.id for hit in hits) == sorted(allowed)


def test_evidence_reaches_generator_and_priors(
    generator: GenerativeRetriever, dense: DenseRetriever, bm25: BM25Retriever
) -> None:
    passage = next(iter(generator.corpus))
    for source in (RetrieverPrior(dense), RetrieverPrior(bm25)):
        before = source.ask(QUERIES, NONE)(np.array([0, 1]))
        after = source.ask(QUERIES, [(), (passage,)])(np.array([0, 1]))
        assert before.shape == after.shape == (2, len(generator.corpus))
        assert before[0] == pytest.approx(after[0], abs=1e-5)
        assert np.abs(before[1] - after[1]).max() > 1e-3
    hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 0.0)])
    first, second = (hybrid.retrieve_hop(QUERIES[1:], some, 3) for some in ([()], [(passage,)]))
    assert first != second


def test_done_has_its_share_unless_the_prior_knows_it(
    generator: GenerativeRetriever, dense: DenseRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(generator.corpus)
    inputs = generator.codec.model_input(generator.encode(QUERIES[:1])[0])
    alone = score_all(generator.decoder(1).generator, generator.index, inputs)
    for share in (DONE_SHARE, -3.0):
        hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(dense), 0.5, 10.0)], share)
        done = hybrid.retrieve_hop(QUERIES[:1], NONE[:1], count)[0].done
        assert done == pytest.approx(alone[-1] + 0.5 * share, abs=1e-3)
    monkeypatch.setattr(dense.encoder, "learned_done", True)
    source = RetrieverPrior(dense)
    assert source.knows_done
    scores = source.ask(QUERIES[:1], NONE[:1])(np.array([0]))[0]
    assert len(scores) == count + 1
    step = HybridRetriever(generator, [WeightedSource(source, 0.5, 10.0)]).retrieve_hop(
        QUERIES[:1], NONE[:1], count
    )
    assert step[0].done == pytest.approx(alone[-1] + 0.5 * log_softmax(scores / 10)[-1], abs=1e-3)


def test_done_that_fell_out_of_the_beam_is_not_known(generator: GenerativeRetriever, data: Path) -> None:
    narrow = small_retriever(data, beams=2)
    prior = WeightedSource(EmptyPromptPrior(narrow), 1e-3)
    steps = HybridRetriever(narrow, [prior], -500.0 / 1e-3).retrieve_hop(QUERIES, NONE, 1)
    assert [(len(step.hits), step.done) for step in steps] == [(1, None), (1, None)]


def test_chains_go_hop_by_hop(generator: GenerativeRetriever, bm25: BM25Retriever) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 1.0)])
    assert isinstance(hybrid, TakesEvidence)
    chains = HopsRetriever(hybrid, HopOptions("fixed", 3, chains=2, branch=2)).retrieve_chains(QUERIES)
    for chain, *_ in chains:
        assert len({hit.id for hit in chain.hits}) == 3
        assert not chain.done
    short = HopsRetriever(hybrid, HopOptions("dynamic", 4, chains=2, branch=3, done_bias=50.0))
    assert [(len(chain.hits), chain.done) for chain, *_ in short.retrieve_chains(QUERIES)] == [
        (1, True),
        (1, True),
    ]


def test_the_empty_prompt_is_asked_once_and_again_when_passages_come(data: Path) -> None:
    generator = small_retriever(data)
    prior = EmptyPromptPrior(generator)
    first = prior.log_probabilities()
    assert prior.log_probabilities() is first
    whole = score_all(generator.decoder(1).generator, generator.index, generator.codec.model_input([]))
    assert first == pytest.approx(whole[:-1], abs=1e-4)
    twin = next(iter(generator.corpus)).text  # as a passage that is there: they share its probability
    generator.add([Passage("new", "the otter is a new one ."), Passage("twin", twin)])
    second = prior.log_probabilities()
    assert len(second) == len(first) + 2
    assert second[-1] == second[0]
    whole = score_all(generator.decoder(1).generator, generator.index, generator.codec.model_input([]))
    assert second[0] == pytest.approx(whole[0] - np.log(2), abs=1e-4)


def test_what_is_remembered_is_asked_once(generator: GenerativeRetriever, bm25: BM25Retriever) -> None:
    class Counted(RetrieverPrior):
        asked = 0

        def ask(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]):  # type: ignore[no-untyped-def]
            self.asked += 1
            return super().ask(queries, evidence)

    counted = Counted(bm25)
    source: PriorSource = Remembering(counted)
    results = [
        HybridRetriever(generator, [WeightedSource(source, w)]).retrieve(QUERIES, 3) for w in (1.0, 2.0, 1.0)
    ]
    assert counted.asked == 1
    assert results[0] == results[2] != results[1]
    HybridRetriever(generator, [WeightedSource(source, 1.0)]).retrieve(QUERIES[:1], 3)
    assert counted.asked == 2


def test_a_model_without_slots_takes_the_plain_search(
    generator: GenerativeRetriever, bm25: BM25Retriever, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = queries()
    expected = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 1.0)]).retrieve(every, 3)
    plain = small_retriever(data, beams=20, batch_size=3)
    plain.trees = None
    found = HybridRetriever(plain, [WeightedSource(RetrieverPrior(bm25), 1.0)]).retrieve(every, 3)
    for some, others in zip(found, expected, strict=True):
        assert [hit.score for hit in some] == pytest.approx([hit.score for hit in others], abs=1e-4)


def test_where_the_search_for_gpus_would_be_taken_the_fast_one_is(
    generator: GenerativeRetriever, bm25: BM25Retriever, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = HybridRetriever(generator, [WeightedSource(RetrieverPrior(bm25), 1.0)]).retrieve(QUERIES, 3)
    monkeypatch.setattr(search, "suits", lambda *_: True)
    other = small_retriever(data, beams=20)
    alone = other.retrieve(QUERIES, 3)
    assert other._kept is not None
    assert isinstance(other._kept[1], DeviceDecoder)
    assert (
        HybridRetriever(other, [WeightedSource(RetrieverPrior(bm25), 1.0)]).retrieve(QUERIES, 3)
        == expected
        != alone
    )


def test_what_cannot_work_is_refused(
    generator: GenerativeRetriever, bm25: BM25Retriever, data: Path, tmp_path: Path
) -> None:
    prior = RetrieverPrior(bm25)
    with pytest.raises(ConfigError, match="the weight of bm25 must be a finite number"):
        HybridRetriever(generator, [WeightedSource(prior, float("inf"))])
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="the temperature of bm25 must be above 0"):
            HybridRetriever(generator, [WeightedSource(prior, 1.0, wrong)])
    for wrong in (0.0, float("-inf"), float("nan")):
        with pytest.raises(ConfigError, match="done_share must be"):
            HybridRetriever(generator, [WeightedSource(prior, 1.0)], wrong)
    with pytest.raises(ConfigError, match="k must be at least 1"):
        HybridRetriever(generator, [WeightedSource(prior, 1.0)]).retrieve(QUERIES, 0)
    with pytest.raises(ConfigError, match="takes no priors"):
        HybridRetriever(small_retriever(data, compile=True), [WeightedSource(prior, 1.0)])
    other = BM25Retriever(Corpus.from_passages([Passage("x", "another passage")]))
    with pytest.raises(MismatchError, match="bm25 is over"):
        HybridRetriever(generator, [WeightedSource(RetrieverPrior(other), 1.0)])


def test_chains_beside_normalized_priors_have_log_probabilities(
    generator: GenerativeRetriever, dense: DenseRetriever
) -> None:
    """Hop by hop what the search finds; a sum over chains of all first hops is one."""
    weighed = [WeightedSource(RetrieverPrior(dense), 0.5)]
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
