"""What retrievers refuse: the call, and what its error says."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failing import raises
from llama_small import write_llama
from scripted_hops import ScriptedHops
from small_data import passages, queries, small_retriever

import grls
from grls.constraint import PassageConstraint
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import GrlsError
from grls.index.build import build_index, index_sequences
from grls.index.options import IndexOptions, LimitOptions
from grls.models.load.generators import CausalLM
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import Fusion, FusionRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import FEATURES, HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hops.stop import StopRule, register_stop
from grls.retrieve.hybrid.priors import WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import load_retriever

OTHER = BM25Retriever(Corpus.from_passages([Passage("x", "another passage")], "other.jsonl"))


@pytest.fixture(scope="module")
def r(data: Path, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("refused")
    generator, corpus = small_retriever(data), Corpus.read(data)
    index = build_index(generator.corpus, generator.codec, form="prefixes")
    prefixes = GenerativeRetriever(generator.model, generator.codec, generator.corpus, index)
    short = CausalLM(str(write_llama(place / "short", data, positions=12))).load()
    causal = GenerativeRetriever.assemble(short.model, short.tokenizer, corpus)
    bm25 = BM25Retriever(corpus)
    return SimpleNamespace(
        data=data,
        place=place,
        generator=generator,
        prefixes=prefixes,
        causal=causal,
        bm25=bm25,
        llama=str(llama),
    )


def over(r: Any, weight: float = 1.0, temperature: float | None = None, **options: Any) -> HybridRetriever:
    return HybridRetriever(r.generator, [WeightedSource(r.bm25, weight, temperature)], **options)


def with_options(r: Any, **options: Any) -> GenerativeRetriever:
    parts = (
        r.generator.model,
        r.generator.codec,
        r.generator.corpus,
        r.prefixes.index,
        SearchOptions(**options),
    )
    return GenerativeRetriever(*parts)


def built(r: Any, kind: str, **options: Any) -> str:
    return build("model", str(r.data), Building(str(r.place / "r"), kind, **options))


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    # queries, k and passages
    (lambda r: r.bm25.retrieve("is it ?", 3), r"a list of queries, got the text 'is it \?'; write \['is it"),
    (lambda r: r.bm25.retrieve([*queries()[:1], 7], 3), r"query 1: expected a text, a Query, or .*, got 7"),
    (lambda r: r.generator.add([]), "the corpus is empty"),
    (lambda r: DenseRetriever.assemble(None, Corpus.from_passages([])), "the corpus is empty"),  # type: ignore[arg-type]
    (
        lambda r: BM25Retriever(Corpus.from_passages([Passage("DONE", "x")])).save_pretrained(r.place),
        "reserved",
    ),
    # folders
    (lambda r: load_retriever(r.place / "none"), "no retriever here"),
    (lambda r: load_retriever("x" * 300), "folder must be a path whose names have at most 255 bytes each"),
    (lambda r: grls.check_folder(r.place), r"neither a retriever .* nor an index"),
    (lambda r: built(r, "hybrid"), r"kind=.hybrid. is not built from a model; choose one of auto"),
    (lambda r: built(r, "spares"), r"kind=.spares. is no kind of retriever"),
    (lambda r: built(r, "sparse", limits=LimitOptions(query=9)), "no query; set input instead"),
    (lambda r: built(r, "multi-vector", index=IndexOptions("flat")), "no backend; leave it out"),
    # generators
    (lambda r: CausalLM(r.llama, layers=3).load(), "between 1 and 2, got 3"),
    (lambda r: r.causal.retrieve([queries()[0]._replace(text="is the otter calm " * 3)], 1), "12 positions"),
    (lambda r: r.causal.add([Passage("long", "the otter is calm " * 9)]), "12 positions"),
    (lambda r: SearchOptions(rescore=-1), "rescore must be at least 0"),
    (lambda r: SearchOptions(rescore_weight=math.nan), "rescore_weight must be a finite number"),
    (
        lambda r: with_options(r, rescore=3).retrieve(queries(), 2),
        "has not learned to rescore passages: train it",
    ),
    (lambda r: build_index(r.generator.corpus, r.generator.codec, memory=2**20), "at least 64 MiB"),
    # unique prefixes
    (
        lambda r: with_options(r, mode="full").retrieve(queries(), 3),
        r"without early stop needs whole.*--index.form",
    ),
    (lambda r: PassageConstraint(r.prefixes.index), r"an engine.*--index.form whole"),
    (
        lambda r: index_sequences([np.array([3, 4, 5, 1]), np.array([3, 1])], 1, form="prefixes").tokens(0),
        "token sequence",
    ),
    (lambda r: index_sequences([[3, 1]], 1, "flat", "prefixes"), "needs the backend 'array'"),  # type: ignore[list-item]
    # hops
    (lambda r: HopOptions("dynamic", max=0), "max must be at least 1, got 0"),
    (lambda r: HopOptions("ranked", branch=2), r"branch is of other hops: choose steps=.single"),
    (lambda r: HopOptions("ranked", temperature=0.0), "temperature must be above 0"),
    (lambda r: HopOptions("ranked", linked=1.5), "linked must be between 0 and 1"),
    (lambda r: HopOptions("ranked", names=3), "names must be a list of texts, got 3"),  # type: ignore[arg-type]
    (lambda r: HopOptions("fixed", links=False), r"links is of other hops: choose steps=.ranked"),
    (lambda r: HopOptions("ranked", onward=(math.nan, *[0.0] * len(FEATURES))), "onward"),
    (lambda r: HopOptions("fixed", stop="log-odds"), r"stop is of other hops: choose steps=.dynamic. or"),
    (lambda r: register_stop("never", StopRule), "the stop rule 'never' is there already"),
    (
        lambda r: HopsRetriever(r.bm25, HopOptions("dynamic", stop="long")),
        "no stop rule is called 'long'; known",
    ),
    (lambda r: HopsRetriever(r.bm25, HopOptions("dynamic")), "bm25 never writes DONE"),
    (lambda r: HopsRetriever(ScriptedHops({}), HopOptions("ranked")), "make no chains"),  # type: ignore[arg-type]
    # fusion
    (lambda r: Fusion("average"), "method must be one of interleave, rrf, sum, got 'average'"),  # type: ignore[arg-type]
    (lambda r: Fusion(weights=(1.0, 1.0)), "interleaving takes no weights"),
    (lambda r: Fusion("sum", weights=(0.0, 0.0)), "one of the weights must be above 0"),
    (lambda r: FusionRetriever([r.bm25, OTHER]), r"is over .* BM25Retriever over other\.jsonl"),
    (lambda r: FusionRetriever([r.bm25]), "at least two members, got 1"),
    (lambda r: FusionRetriever([r.bm25] * 2, Fusion("rrf", weights=(1.0,) * 3)), "3 weights for 2 members"),
    # priors
    (lambda r: over(r, math.inf), "the weight of bm25 must be a finite number"),
    (lambda r: over(r, -0.5), "the weight of bm25 must be a finite number of at least 0"),
    (lambda r: over(r, 1.0, 0.0), "the temperature of bm25 must be above 0"),
    (lambda r: HybridRetriever(r.generator, [WeightedSource(OTHER, 1.0)]), "bm25 is over"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_it_is_refused(r: Any, call: Callable[[Any], Any], says: str) -> None:
    raises(GrlsError, says, call, r)
    assert len(r.prefixes.corpus) == len(r.causal.corpus) == len(passages())
