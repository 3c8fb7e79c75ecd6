"""What the beam considers: the numbers are those of the model, and the search is that of the retriever."""

import math
from pathlib import Path

import numpy as np
import pytest
from small_data import small_retriever, write_small

from grls.data.filters import Only
from grls.data.types import Query
from grls.errors import ConfigError, DataError
from grls.explain.beams import BeamTrace, TracedToken, no_beam, trace_beam
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.hybrid.priors import RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource

QUERY = "is the otter kind ?"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("beams"))


@pytest.fixture(scope="module")
def retriever(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=3)


def prefix(trace: BeamTrace, step: int, token: TracedToken) -> list[TracedToken]:
    """The tokens of a candidate, from the first one on."""
    before = trace.steps[step].beams[token.beam].parent
    if before is None:
        return [token]
    return [*prefix(trace, step - 1, trace.steps[step - 1].tokens[before]), token]


def test_it_finds_what_the_retriever_finds(retriever: GenerativeRetriever) -> None:
    trace = trace_beam(retriever, QUERY, k=3)
    (hits,) = retriever.retrieve([QUERY], 3)
    assert [one.id for one in trace.results] == [hit.id for hit in hits]
    assert [one.score for one in trace.results] == pytest.approx([hit.score for hit in hits], abs=1e-4)
    assert trace.results[0].text == retriever.corpus[retriever.corpus.numbers([hits[0].id])[0]].text
    assert (trace.beams, trace.k, trace.mode, trace.cut) == (3, 3, "renormalized", False)


def test_the_scores_of_a_path_add_up(retriever: GenerativeRetriever) -> None:
    trace = trace_beam(retriever, QUERY, k=3, most=64)
    scores = {one.id: one.score for one in trace.results}
    ended = 0
    for number, step in enumerate(trace.steps):
        for token in step.tokens:
            path = prefix(trace, number, token)
            assert len(path) == number + 1
            assert token.score == pytest.approx(sum(one.constrained for one in path))
            for name in token.found:
                ended += name in scores
                assert token.score == pytest.approx(scores.get(name, token.score))
    assert ended == len(scores)


def test_probabilities_are_those_of_the_model(retriever: GenerativeRetriever) -> None:
    """Among the allowed tokens they sum to one, in the vocabulary to the mass of the beam."""
    trace = trace_beam(retriever, QUERY, k=3, most=64)
    for step in trace.steps:
        assert step.candidates == sum(beam.allowed for beam in step.beams) == len(step.tokens)
        for place, beam in enumerate(step.beams):
            tokens = [token for token in step.tokens if token.beam == place]
            assert sum(math.exp(token.constrained) for token in tokens) == pytest.approx(1.0)
            assert sum(math.exp(token.full) for token in tokens) == pytest.approx(beam.mass)
            assert 0 < beam.mass <= 1
            assert len(tokens) == beam.allowed


def test_the_first_step_is_computed_by_the_model_itself(retriever: GenerativeRetriever) -> None:
    trace = trace_beam(retriever, QUERY, k=3, most=64)
    codec, query = retriever.codec, retriever.encode([Query("query", QUERY)])[0]
    session = retriever.decoder(3).generator.open([codec.model_input(query, [])])
    session.first()
    every = np.arange(trace.vocabulary)
    logits = session.logits(np.zeros(len(every), np.int64), every).astype(np.float64)
    expected = logits - np.logaddexp.reduce(logits)
    for token in trace.steps[0].tokens:
        number = codec.tokenizer.convert_tokens_to_ids(token.token)
        assert token.full == pytest.approx(expected[number], abs=1e-4)


def test_passages_that_remain(retriever: GenerativeRetriever) -> None:
    trace = trace_beam(retriever, QUERY, k=3, most=64)
    assert trace.passages == len(retriever.corpus)  # DONE may not be written without evidence
    for number, step in enumerate(trace.steps):
        for place, beam in enumerate(step.beams):
            under = sum(token.passages for token in step.tokens if token.beam == place)
            before = None if beam.parent is None else trace.steps[number - 1].tokens[beam.parent].passages
            assert under == (trace.passages if before is None else before)
        for token in step.tokens:
            assert (token.passages == 1) >= token.unique
            if token.fate == "finished":
                assert len(token.found) == token.passages


def test_fates(retriever: GenerativeRetriever) -> None:
    trace = trace_beam(retriever, QUERY, k=2)
    for step, after in zip(trace.steps, [*trace.steps[1:], None], strict=True):
        kept = [place for place, token in enumerate(step.tokens) if token.fate == "kept"]
        assert kept == ([] if after is None else [beam.parent for beam in after.beams])
        scores = [token.score for token in step.tokens]
        assert scores == sorted(scores, reverse=True)
    fates = {token.fate for step in trace.steps for token in step.tokens}
    assert {"kept", "finished", "pruned"} <= fates


def test_few_candidates_are_listed_and_those_within_the_beam_come_first(
    retriever: GenerativeRetriever,
) -> None:
    whole, few = trace_beam(retriever, QUERY, k=3, most=64), trace_beam(retriever, QUERY, k=3, most=3)
    for step, short in zip(whole.steps, few.steps, strict=True):
        within = [token.score for token in step.tokens if token.fate != "pruned"]
        assert [token.score for token in short.tokens][: len(within)] == within[:3]
        assert short.candidates == step.candidates
        assert len(short.tokens) <= 3


def test_done_may_be_written_after_evidence_of_dynamic_hops(retriever: GenerativeRetriever) -> None:
    hops = hop_by_hop(retriever, HopOptions(steps="dynamic", max=3, done_bias=0.5))
    first, second = trace_beam(hops, QUERY), trace_beam(hops, QUERY, ["otter-calm"])
    assert second.passages == first.passages  # one passage less, and DONE
    assert "otter-calm" not in [one.id for one in second.results]
    assert (first.done_bias, second.done_bias) == (0.0, 0.5)
    assert trace_beam(hop_by_hop(retriever, HopOptions(steps="fixed", max=2)), QUERY, ["r0"]).k == 4
    found = {name for step in second.steps for token in step.tokens for name in token.found}
    assert "DONE" in found | {one.id for one in trace_beam(hops, QUERY, ["otter-calm"], k=12).results}


def test_a_filter_bounds_what_the_constraint_allows(retriever: GenerativeRetriever) -> None:
    allow = Only(frozenset({"otter-calm", "otter-quick"}))
    trace = trace_beam(retriever, QUERY, allow=allow, k=3)
    assert trace.passages == 2
    assert {one.id for one in trace.results} == {"otter-calm", "otter-quick"}
    alone = trace_beam(retriever, QUERY, allow=Only(frozenset({"r0"})))
    assert (alone.steps, [one.id for one in alone.results]) == ((), ["r0"])


def test_priors_have_their_share(data: Path, retriever: GenerativeRetriever) -> None:
    hybrid = HybridRetriever(
        retriever, [WeightedSource(RetrieverPrior(BM25Retriever(retriever.corpus)), 0.7)]
    )
    trace, plain = trace_beam(hybrid, QUERY, k=3, most=64), trace_beam(retriever, QUERY, k=3, most=64)
    first = trace.steps[0].tokens
    assert all(token.prior is not None for token in first)
    for token in first:
        assert token.score == pytest.approx(token.constrained + (token.prior or 0.0))
    assert {round(token.constrained, 4) for token in first} == {
        round(token.constrained, 4) for token in plain.steps[0].tokens
    }
    (hits,) = hybrid.retrieve([QUERY], 3)
    assert [one.id for one in trace.results] == [hit.id for hit in hits]
    assert all(token.prior is None for token in plain.steps[0].tokens)


def test_what_cannot_be_traced(data: Path, retriever: GenerativeRetriever) -> None:
    bm25 = BM25Retriever(retriever.corpus)
    assert no_beam(retriever) is None
    assert "decodes no tokens" in str(no_beam(bm25))
    with pytest.raises(ConfigError, match="decodes no tokens"):
        trace_beam(bm25, QUERY)
    with pytest.raises(ConfigError, match="most must be between"):
        trace_beam(retriever, QUERY, most=65)
    with pytest.raises(DataError, match="'no such'"):
        trace_beam(retriever, QUERY, ["no such"])
