"""Retrievals of every kind that join a search get what they get alone, whoever comes and goes meanwhile."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import pytest
import torch
from cross_encoders import cross_encoder
from decode_helpers import Arrivals
from small_data import small_retriever, tiny_bert

from grls.api.streaming import StreamedHop, plan_hops, stream_hops
from grls.data.corpus import Corpus
from grls.data.filters import Only
from grls.data.types import Hit, Query
from grls.decode.gpu.search import DeviceDecoder
from grls.errors import DataError
from grls.identifiers.spans import Spans
from grls.models.biencoder import BiEncoderModel
from grls.models.cross_encoder import PairScorer
from grls.models.head import RescoreInput
from grls.retrieve.base import Plan, runner_of
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever, generator_within
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.hybrid.priors import WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.rescored.retriever import over
from grls.retrieve.run import RetrieverRun

TEXTS = [f"is the {animal} {trait} ?" for animal in ("otter", "lynx", "heron") for trait in ("calm", "quick")]
HOPS = {
    "fixed": HopOptions("fixed", 2, chains=2, branch=2),
    "dynamic": HopOptions("dynamic", 3, chains=2, done_bias=0.5),
    "ranked": HopOptions("ranked", 3, chains=2),
    "sets": HopOptions("dynamic", 3, sets=True, choose="expected-f1"),
}


class Asked(NamedTuple):
    retriever: Any
    query: Query
    k: int
    allow: Only | None
    streamed: bool


class Retrievals(Arrivals):
    """Retrievals that come in; ``hops`` holds what the streamed ones have found."""

    def __init__(self, asked: Sequence[Asked], arrive: Sequence[int], leave: dict[int, int]):
        super().__init__(asked, arrive, leave)
        self.hops: dict[int, list[StreamedHop]] = {}

    def joining(self, n: int, asked: Asked) -> tuple[Plan[Any], int]:
        if not asked.streamed:
            return asked.retriever.plan(asked.query, asked.k, asked.allow), n
        self.hops[n] = []
        return plan_hops(asked.retriever, asked.query, asked.allow, self.hops[n].append), n


@pytest.fixture(scope="module")
def generator(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=5, batch_size=6)


def hybrid(generator: GenerativeRetriever, place: Path, normalized: bool) -> HybridRetriever:
    torch.manual_seed(0)
    biencoder = BiEncoderModel.load(str(tiny_bert(place)), device="cpu")
    corpus = generator.corpus
    dense = WeightedSource(DenseRetriever.assemble(biencoder, corpus), 0.5, 2.0)
    return HybridRetriever(generator, [dense, WeightedSource(BM25Retriever(corpus), 0.7)], normalized)


def rereading(generator: GenerativeRetriever) -> GenerativeRetriever:
    options = replace(generator.options, rescore=4, rescore_weight=0.5)
    parts = (generator.model, generator.codec, generator.corpus, generator.index, options)
    return GenerativeRetriever(*parts, identifiers=generator.identifiers, rescore_input=RescoreInput(4))


def of_spans(generator: GenerativeRetriever) -> GenerativeRetriever:
    parts = (generator.model, generator.codec.tokenizer, generator.corpus)
    return GenerativeRetriever.assemble(*parts, options=generator.options, kind=Spans(3))


MADE: dict[str, Callable[[GenerativeRetriever, Path], Any]] = {
    "generative": lambda generator, _: generator, "rereading": lambda generator, _: rereading(generator),
    "hybrid": lambda generator, place: hybrid(generator, place, False), "normalized": lambda generator,
    place: hybrid(generator, place, True), "spans": lambda generator, _: of_spans(generator),
    "spans rereading": lambda generator, _: rereading(of_spans(generator)),
    "spans hybrid": lambda generator, place: hybrid(of_spans(generator), place, False),
    "spans normalized": lambda generator, place: hybrid(of_spans(generator), place, True),
}  # fmt: skip


def mixed(one: Any, rng: random.Random, count: int) -> list[Asked]:
    names = [name for name in HOPS if name != "sets" or one.scores_are_log_probabilities]
    ways = [one, *(hop_by_hop(one, HOPS[name]) for name in names)]
    ids = [passage.id for passage in one.corpus]
    asked = []
    for number in range(count):
        allow = Only(frozenset(rng.sample(ids, 6))) if rng.random() < 0.3 else None
        query = Query(str(number), rng.choice(TEXTS))
        asked.append(Asked(rng.choice(ways), query, rng.choice([1, 3, 7]), allow, rng.random() < 0.3))
    return asked


def same(hits: Sequence[Hit], expected: Sequence[Hit]) -> None:
    order = lambda hit: (-round(hit.score, 3), hit.id)  # noqa: E731  # nearly equal scores in any order
    assert [hit.id for hit in sorted(hits, key=order)] == [hit.id for hit in sorted(expected, key=order)]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-4)


def check(source: Retrievals, n: int, asked: Asked) -> None:
    if not asked.streamed:
        same(source.answers[n], asked.retriever.retrieve([asked.query], asked.k, asked.allow)[0])
        return
    expected = list(stream_hops(asked.retriever, asked.query, asked.allow, RLock()))
    assert [hop[0] for hop in source.hops[n]] == [hop.number for hop in expected]
    for hop, other in zip(source.hops[n], expected, strict=True):
        same(hop.chain, other.chain)
        assert (hop.hit and hop.hit.text, hop.done, hop.last) == (
            other.hit and other.hit.text, other.done, other.last,
        )  # fmt: skip
        assert hop.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("kind", MADE)
def test_retrievals_that_join_get_the_results_of_a_search_of_their_own(
    kind: str, device: bool, generator: GenerativeRetriever, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they join the search for devices, and the one of their own is the fast search."""
    rng, count = random.Random(kind), 12
    if device:
        monkeypatch.setattr(GenerativeRetriever, "_on_device", lambda self, trees: True)
    one = MADE[kind](generator, tmp_path)
    asked = mixed(one, rng, count)
    leave = {rng.randrange(count): rng.randrange(30) for _ in range(5)}
    source = Retrievals(asked, [rng.randrange(25) for _ in range(count)], leave)
    assert runner_of(one) is one
    one.run_plans(source)
    assert not source.errors
    assert {*source.answers} | {*leave} == {*range(count)}
    assert generator_within(one).searched_by == f"{'device' if device else 'fast'} on cpu"
    monkeypatch.undo()
    for n in source.answers:
        check(source, n, asked[n])


def test_who_wants_more_passages_than_a_grid_has_beams_joins_a_wider_one(
    generator: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for those in slots, and those that come later join it; no query has a search of its own."""
    monkeypatch.setattr(GenerativeRetriever, "_on_device", lambda self, trees: True)
    widths, indexes = [], set()
    run = DeviceDecoder.run

    def seen(self: DeviceDecoder, *arguments: Any) -> None:
        widths.append(self.beams)
        indexes.add(id(self.tensors))
        run(self, *arguments)

    def refused(*arguments: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(DeviceDecoder, "run", seen)
    monkeypatch.setattr(DeviceDecoder, "search", refused)
    asked = [Asked(generator, Query(str(n), TEXTS[n % 4]), 7 if n == 2 else 3, None, False) for n in range(8)]
    source = Retrievals(asked, [0, 0, 1, 2, 3, 4, 5, 6], {})
    generator.run_plans(source)
    assert widths == [5, 7]
    assert list(source.answers)[-1] != 2  # those that come later do not keep it waiting
    assert len(indexes) == 1  # it is on the device once
    monkeypatch.undo()
    for n, query in enumerate(asked):
        check(source, n, query)


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_that_another_search_began_is_not_resumed(
    generator: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Its manifest says which search decoded; workers choose theirs."""
    queries = [Query("q", TEXTS[0])]
    run = RetrieverRun(generator, queries, "data", None, 3, "float32")
    begun: list[Any] = []

    def begin(settings: Any, *arguments: Any) -> Any:
        begun.append(settings)
        raise InterruptedError

    monkeypatch.setattr("grls.retrieve.run.in_portions", lambda output, settings, *rest: begin(settings()))
    for device in (False, True):
        monkeypatch.setattr(GenerativeRetriever, "_on_device", lambda self, trees, device=device: device)
        with pytest.raises(InterruptedError):
            run.save("run", share=begin if shared else None)
    searches = ["", ""] if shared else ["fast on cpu", "device on cpu"]
    assert [settings.pop("search") for settings in begun] == searches
    assert begun[0] == begun[1]


def test_the_first_retrievals_of_a_cross_encoder_join(generator: GenerativeRetriever, tmp_path: Path) -> None:
    encoder = PairScorer.load(str(cross_encoder(tmp_path / "encoder")), "cpu")
    one = over(generator, encoder, Rereading(3, 0.5))
    assert runner_of(one) is generator
    asked = [Asked(one, Query(str(n), text), 2, None, n % 2 == 1) for n, text in enumerate(TEXTS)]
    source = Retrievals(asked, [0] * len(asked), {})
    generator.run_plans(source)
    for n, query in enumerate(asked):
        check(source, n, query)


class Leaves(Retrievals):
    def gone(self, owner: int) -> bool:
        return owner == 0 and len(self.hops[0]) > 0


def test_what_nobody_waits_for_makes_no_further_hop(generator: GenerativeRetriever) -> None:
    chained = hop_by_hop(generator, HopOptions("fixed", 3, chains=1, branch=1))
    asked = [Asked(chained, Query("0", text), 3, None, True) for text in TEXTS[:2]]
    source = Leaves(asked, [0, 0], {})
    generator.run_plans(source)
    assert (len(source.hops[0]), len(source.hops[1])) == (1, 3)
    assert {*source.answers} == {1}
    check(source, 1, asked[1])


class Hurries(Retrievals):
    def waiting(self) -> int:
        most = len(self.taken) + len(self.later) - 1
        return len(self.later) - (not all(self.hops.get(n) for n in range(most)))

    def take(self, most: int) -> list[Any]:
        return super().take(min(most, self.waiting()))


def test_a_single_step_does_not_wait_for_the_later_hops_of_others(generator: GenerativeRetriever) -> None:
    chained = hop_by_hop(generator, HopOptions("fixed", 3, chains=4, branch=4))
    asked = [Asked(chained, Query("0", text), 3, None, True) for text in TEXTS[:4]]
    asked.append(Asked(generator, Query("0", TEXTS[4]), 3, None, False))
    source = Hurries(asked, [0] * 5, {})
    generator.run_plans(source)
    assert next(iter(source.answers)) == 4
    for n, one in enumerate(asked):
        check(source, n, one)


def test_a_retrieval_that_cannot_be_done_fails_alone(generator: GenerativeRetriever) -> None:
    texts = [TEXTS[0], "word " * 400, TEXTS[1]]
    asked = [Asked(generator, Query(str(n), text), 2, None, False) for n, text in enumerate(texts)]
    asked.append(Asked(generator, Query("3", TEXTS[2]), 2, Only(frozenset(["nowhere"])), False))
    source = Retrievals(asked, [0] * 4, {})
    generator.run_plans(source)
    assert {*source.errors} == {1, 3}
    assert all(isinstance(error, DataError) for error in source.errors.values())
    for n in (0, 2):
        check(source, n, asked[n])


def test_kinds_without_a_decoder_in_slots_join_nothing(
    generator: GenerativeRetriever, tmp_path: Path
) -> None:
    corpus: Corpus = generator.corpus
    words = BM25Retriever(corpus)
    encoder = PairScorer.load(str(cross_encoder(tmp_path / "encoder")), "cpu")
    reread = over(generator, encoder, Rereading(3, 0.5))
    for one in (words, hop_by_hop(words, HOPS["fixed"]), hop_by_hop(reread, HOPS["fixed"])):
        assert runner_of(one) is None
