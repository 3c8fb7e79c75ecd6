"""Filters, removals and additions, for every kind of retriever, in memory and on disk."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_models import tiny_colbert, tiny_splade
from failing import raises
from fixture_types import Caplog
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import passages, small_retriever

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError, GrlsError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import FusionRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.multi_vector import LateTexts, MultiVectorRetriever
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.retrieve.update import Changes

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "is it proud ?")]
IDS = [passage.id for passage in passages()]
SOME = ["otter-calm", "lynx-quick", "r0"]


@pytest.fixture
def generative(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=12)


@pytest.fixture(scope="module")
def kinds(
    data: Path, corpus: Corpus, biencoder: BiEncoderModel, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("models")
    made: dict[str, Any] = {
        "generative": small_retriever(data, beams=12),
        "bm25": BM25Retriever(corpus, analyzer=Analyzer("none")),
        "dense": DenseRetriever.assemble(biencoder, corpus),
    }
    made["sparse"] = SparseRetriever.assemble(
        SparseTexts.load(str(tiny_splade(place / "splade")), "cpu"), corpus
    )
    late = LateTexts.load(str(tiny_colbert(place / "colbert")), "cpu")
    made["multi-vector"] = MultiVectorRetriever.assemble(late, corpus)
    return made | {"ensemble": FusionRetriever([made["bm25"], made["dense"]])}


def over(retriever: GenerativeRetriever, kept: list[Passage]) -> GenerativeRetriever:
    return GenerativeRetriever.assemble(
        retriever.model, retriever.codec.tokenizer, Corpus.from_passages(kept), options=retriever.options
    )


@pytest.mark.parametrize("kind", ["generative", "bm25", "dense", "sparse", "multi-vector", "ensemble"])
@settings(max_examples=15, deadline=None)
@given(
    allow=st.lists(st.one_of(st.none(), st.sets(st.sampled_from(IDS), min_size=1)), min_size=3, max_size=3)
)
def test_a_query_finds_the_best_of_its_allowed_passages(kind: str, kinds: dict[str, Any], allow: Any) -> None:
    retriever = kinds[kind]
    everything = retriever.retrieve(QUERIES, 10)
    found = retriever.retrieve(QUERIES, 10, allow)
    for hits, every, some in zip(found, everything, allow, strict=True):
        expected = [hit.id for hit in every if some is None or hit.id in some]
        if kind == "generative":  # at every step the softmax is over fewer tokens, so the order may change
            assert {hit.id for hit in hits} == set(expected)
            assert np.exp([hit.score for hit in hits]).sum() == pytest.approx(1.0, abs=1e-4)
        elif kind != "ensemble":
            assert [hit.id for hit in hits] == expected
        else:
            assert {hit.id for hit in hits} == set(expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_hop_finds_allowed_passages_and_done_still_ends(
    generative: GenerativeRetriever, dynamic: bool
) -> None:
    allow = [SOME, None, ["r1"]]
    search = HopsRetriever(
        generative,
        HopOptions("dynamic" if dynamic else "fixed", 4, chains=3, done_bias=2.0 if dynamic else 0.0),
    )
    for chains, some in zip(search.retrieve_chains(QUERIES, allow), allow, strict=True):
        assert chains
        for chain in chains:
            assert {hit.id for hit in chain.hits} <= set(some or IDS)
            assert dynamic or len(chain.hits) == min(4, len(some or IDS))
    if dynamic:
        ends = [chains[0].done for chains in search.retrieve_chains(QUERIES, allow)]
        assert (ends[0], ends[2]) == (True, True)  # a chain of all that is allowed goes on with DONE
    alone = HopsRetriever(over(generative, [p for p in passages() if p.id in SOME]), HopOptions("fixed", 3))
    filtered = HopsRetriever(generative, HopOptions("fixed", 3))
    for chains, others in zip(
        filtered.retrieve_chains(QUERIES, SOME), alone.retrieve_chains(QUERIES), strict=True
    ):
        assert [c.score for c in chains] == pytest.approx([c.score for c in others], abs=1e-4)


@pytest.mark.parametrize("kind", ["generative", "bm25", "dense"])
def test_a_filter_that_leaves_nothing_is_told(kind: str, kinds: dict[str, Any], caplog: Caplog) -> None:
    retriever = kinds[kind]
    with caplog.at_level(logging.WARNING):
        found = retriever.retrieve(QUERIES[:2], 5, [[], ["otter-calm"]])
    assert found[0] == []
    assert len(found[1]) == 1
    assert "query 'a': its filter leaves no passage" in caplog.text
    for nothing in ([], [[], set()]):
        caplog.clear()
        assert retriever.retrieve(QUERIES[:2], 5, nothing) == [[], []]
        assert [one.getMessage()[:33] for one in caplog.records] == ["the filter leaves no passage of t"]
    with pytest.raises(DataError, match="names the passage id 'zebra', which is not in"):
        retriever.retrieve(QUERIES, 5, ["zebra"])
    raises(ConfigError, "allow has 2 entries for 3 queries", retriever.retrieve, QUERIES, 5, [None, None])


@pytest.mark.parametrize(("remove", "add", "said"), [
    (["r0", "zebra"], [], "'zebra' is not in the corpus"),
    (IDS, [], "the last passage cannot be removed"),
    ([], [Passage("r1", "x")], "'r1' is used already"),
    ([], [Passage("x", "x"), Passage("x", "y")], "'x' is used already"),
    ([], [Passage("DONE", "x")], "'DONE' is reserved"),
])  # fmt: skip
def test_what_cannot_be_changed_is_refused_and_changes_nothing(
    generative: GenerativeRetriever, remove: list[str], add: list[Passage], said: str
) -> None:
    def change() -> None:
        generative.change(Changes(Corpus.from_passages(add) if add else None, remove))

    raises(GrlsError, said, change)
    assert [passage.id for passage in generative.corpus] == IDS
