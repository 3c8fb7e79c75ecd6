"""One ranking whatever batch, order or threads; ties by the order of passages.

Scores may differ by ROUNDING between batches, because sums are taken in another order; so passages whose
scores are nearer than that may change places between batches, and nothing else may.
"""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import small_data
from composite_specs import written
from fault_folders import write_every_kind
from models_small import small_llama
from small_data import ANIMALS, passages, queries, small_retriever

from grls.api.searcher import Searcher
from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage
from grls.errors import ConfigError
from grls.retrieve.base import Retriever
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import Opening, load_retriever

ROUNDING = 1e-4
KINDS = (
    "bm25", "dense", "sparse", "multi-vector", "generative", "changed", "spans", "prefixes", "hybrid", "hops",
    "fusion", "chains", "rescored",
)  # fmt: skip
ASKED = [query.text for query in queries()]
WORDS = ["is", "the", *ANIMALS, "calm", "quick", "something", "if", "then", "it"]


def same(ones: Sequence[list[Hit]], others: Sequence[list[Hit]]) -> None:
    """Equal scores up to rounding, and equal passages where scores are further apart."""
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=ROUNDING)
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            if left.id != right.id:
                near = [hit.id for hit in other if abs(hit.score - left.score) < 2 * ROUNDING]
                assert left.id in near or place == len(one) - 1, (one, other)


@cache
def opened(folder: Path) -> Retriever:
    return load_retriever(folder, Opening("cpu", truncate_queries=True))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_the_order_of_queries_change_nothing(place: Path, kind: str) -> None:
    retriever = opened(place / kind)
    expected = retriever.retrieve(ASKED, 4)
    assert retriever.retrieve(ASKED, 4) == expected
    same([retriever.retrieve([text], 4)[0] for text in ASKED[:5]], expected[:5])
    same(retriever.retrieve(ASKED[::-1], 4)[::-1], expected)
    same(retriever.retrieve(ASKED[:3] * 3, 4)[3:6], expected[:3])
    if kind not in ("bm25", "hops", "chains", "hybrid", "fusion"):
        few = load_retriever(place / kind, Opening("cpu", search=SearchOptions(beams=20, batch_size=3)))
        same(few.retrieve(ASKED, 4), load_retriever(
            place / kind, Opening("cpu", search=SearchOptions(beams=20))).retrieve(ASKED, 4))  # fmt: skip


HOPS = {
    f"{steps}-{kind}": {"kind": "hops", "retriever": f"../{kind}", "hops": {"steps": steps, "max": 2}}
    for steps, kinds in {
        "fixed": ("sparse", "rescored", "spans", "causal"),
        "dynamic": ("dense", "hybrid"),
        "ranked": ("bm25", "generative"),
    }.items()
    for kind in kinds
}
"""Hops of every kind of step, over retrievers of all sorts."""
FUSED = {"kind": "fusion", "method": "rrf", "members": ["../dense", "../multi-vector", "../rescored"]}


@pytest.fixture(scope="module")
def place(every_kind: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_hops_and_causal(Path(shutil.copytree(every_kind, tmp_path_factory.mktemp("all") / "kinds")))


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind over a corpus with copies of a passage."""
    place, every = tmp_path_factory.mktemp("copies"), passages()
    twins = [Passage(f"copy-{n}", "the otter is calm .") for n in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_data, "passages", lambda: [*twins[:3], *every, *twins[3:]])
        write_every_kind(place)
    return with_hops_and_causal(place)


def with_hops_and_causal(place: Path) -> Path:
    """Beside the kinds: a causal language model, hops over all, a fusion whose members share a model."""
    small = load_retriever(place / "generative", Opening("cpu"))
    tokenizer = small.codec.tokenizer  # type: ignore[attr-defined]
    model = small_llama()
    model.resize_token_embeddings(len(tokenizer))
    limits = Limits(passage=40, query=128, input=200)
    GenerativeRetriever.assemble(model, tokenizer, small.corpus, limits).save_pretrained(place / "causal")
    for name, spec in {**HOPS, "shared": FUSED}.items():
        written(place / name, spec)
    return place


@pytest.mark.parametrize("kind", [*KINDS, "causal", "shared", *HOPS])
def test_threads_and_tasks_find_what_one_caller_finds(place: Path, kind: str) -> None:
    """8 threads, whose texts of 1 to 200 words are counted, cut and padded at the same time."""
    retriever = opened(place / kind)
    texts = [" ".join(WORDS[n % 12 :] + WORDS * (n * n % 17)) for n in range(8)]
    batches = [texts[n : n + 2] for n in range(0, 8, 2)]
    alone = [retriever.retrieve(batch, 3) for batch in batches]

    def ask(number: int) -> list[list[Hit]]:
        return retriever.retrieve(batches[number % len(batches)], 3)

    async def tasks() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(ask, number) for number in range(len(batches))))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places within calls, not only between them
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(2 * len(batches)))) == alone * 2
        assert asyncio.run(tasks()) == alone
    finally:
        sys.setswitchinterval(interval)


def test_equal_passages_go_in_the_order_of_the_corpus(place: Path) -> None:
    twins = [Passage(name, "the otter is calm .") for name in ("z", "a", "m", "b")]
    corpus = Corpus.from_passages([*twins, *passages()])
    first = [hit.id for hit in BM25Retriever(corpus).retrieve(["the otter is calm"], 5)[0]]
    assert first == ["z", "a", "m", "b", "otter-calm"]
    shutil.copytree(place / "data", place / "twins")
    corpus.write(place / "twins" / "corpus.jsonl")
    written = small_retriever(place / "twins", beams=20).retrieve(["is the otter calm ?"], 20)[0]
    order = [hit.id for hit in written if hit.id in {*first}]
    assert order == [name for name in ("z", "a", "m", "b", "otter-calm") if name in order]


@pytest.mark.parametrize("kind", [*KINDS, "causal", "shared", *HOPS])
def test_a_filter_that_nothing_passes_finds_nothing(place: Path, kind: str) -> None:
    """Alone, with other queries, one after another and hop by hop; an unknown field stays an error."""
    searcher = Searcher(opened(place / kind), place / kind)
    nothing: tuple[dict[str, Any], ...] = ({"where": "year<1000"}, {"allow": []}, {"allow": set()})
    for options in nothing:
        assert searcher.search(ASKED[0], **options) == []
        assert searcher.search(ASKED[:3], **options) == [[], [], []]
        assert asyncio.run(searcher.asearch(ASKED[0], **options)) == []
        hops = list(searcher.stream(ASKED[0], **options))
        assert [(hop.hit, hop.chain) for hop in hops] == [(None, ())] * len(hops)
    mixed = searcher.retriever.retrieve(ASKED[:2], 3, [[], None])
    assert mixed[0] == []
    assert mixed[1]
    for ask in (searcher.search, lambda *args, **options: list(searcher.stream(*args, **options))):
        with pytest.raises(ConfigError, match="metadata field 'yaer'"):
            ask(ASKED[0], where="yaer<1000")


@pytest.mark.parametrize("kind", [*KINDS, "causal", "shared", *HOPS])
def test_copies_keep_their_order_alone_and_together(copies: Path, kind: str) -> None:
    """Equal passages go in the order of the corpus, whatever else is asked.

    Ranked hops drop chains, so the probabilities of copies differ; but not by what else is asked.
    """
    retriever = opened(copies / kind)
    texts = [" ".join(WORDS[n % 12 :] + WORDS * n) for n in range(4)]
    together = retriever.retrieve(texts, 15)
    for text, found in zip(texts, together, strict=True):
        (alone,) = retriever.retrieve([text], 15)
        order = [[hit.id for hit in hits if hit.id.startswith("copy")] for hits in (alone, found)]
        assert order[0] == order[1], text
        assert order[0] == sorted(order[0]) or kind.startswith("ranked"), text
    assert kind == "hops" or any(hit.id.startswith("copy") for hits in together for hit in hits)
