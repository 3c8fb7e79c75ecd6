"""A passage that only its name leads to is found at every door and with every retriever, and says by what."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_letters
from typing import Any

import pytest
from composite_specs import written
from cross_encoders import cross_encoder
from fixture_types import Capsys
from small_data import small_retriever, tiny_bert, write_jsonl, write_small
from toy_kind import TARGET

import grls
from grls import adapters
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Hit
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import KINDS, register
from grls.runs.run import Run

QUESTION = "Where was the director of Blue Moon Rising born?"
CROWD = [f"{one} Kalb met Anna where the director of a film was born." for one in ascii_letters[:30]]
"""They have the words of the name, though not the name, and keep its bearer from the best 20 of a hop."""
PASSAGES = [
    {"_id": "film", "title": "Blue Moon Rising", "text": "A film of 1942 by Anna Kalb.", "metadata": {}},
    {"_id": "man", "title": "Anna Kalb", "text": "He liked cold soup. " * 40, "metadata": {}},
    *({"_id": f"p{n}", "title": "", "text": text, "metadata": {}} for n, text in enumerate(CROWD)),
]
LINK = {"words": "Anna Kalb", "passage": "film"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A retriever of every kind over passages of which one is found by its name alone."""
    import torch

    place = tmp_path_factory.mktemp("links")
    data = write_small(place / "data")
    write_jsonl(data / "corpus.jsonl", PASSAGES)
    write_jsonl(data / "queries.jsonl", [{"_id": "q", "text": QUESTION, "metadata": {}}])
    for split in ("train", "dev", "test"):
        (data / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq\tman\t1\n")
    corpus = Corpus.read(data)
    BM25Retriever(corpus).save_pretrained(place / "bm25")
    torch.manual_seed(0)
    encoder = BiEncoderModel.load(str(tiny_bert(place / "bert")), device="cpu")
    DenseRetriever.assemble(encoder, corpus).save_pretrained(place / "dense")
    small_retriever(data, sharpness=1.0).save_pretrained(place / "generative")
    cross_encoder(place / "encoder")
    corpus.write(written(place / "toy", {"kind": "toy"}) / "corpus.jsonl")
    written(place / "fusion", {"kind": "fusion", "members": ["../bm25", "../dense"], "method": "rrf"})
    spec = {"kind": "rescored", "retriever": "../bm25", "model": "../encoder", "passages": 5, "weight": 0.1}
    written(place / "rescored", spec)
    priors = [{"retriever": "../bm25", "weight": 1.0}]
    written(place / "hybrid", {"kind": "hybrid", "generator": "../generative", "priors": priors})
    for links in ("true", "false"):
        options = ["--hops.steps=ranked", f"--hops.links={links}"]
        assert main(["index", "hops", str(place / "bm25"), *options, f"--output={place / links}"]) == 0
    register("toy", TARGET)
    yield place
    del KINDS["toy"]


Found = dict[str, Any]
"""The ids that were found, and what is said of the links to each; None: nothing is said there."""


def of_hits(hits: list[Hit]) -> Found:
    return {hit.id: [link._asdict() for link in hit.links] for hit in hits}


def of_records(records: list[dict[str, Any]]) -> Found:
    return {record["id"]: record.get("links", []) for record in records}


def python(place: Path, links: bool, capsys: Capsys) -> Found:
    return of_hits(grls.BM25(place / "data").hops(links=links).search(QUESTION, k=3))


def asynchronous(place: Path, links: bool, capsys: Capsys) -> Found:
    return of_hits(asyncio.run(grls.BM25(place / "data").hops(links=links).asearch(QUESTION, k=3)))


def streamed(place: Path, links: bool, capsys: Capsys) -> Found:
    *_, last = grls.BM25(place / "data").hops(links=links).stream(QUESTION)
    return of_hits(list(last.chain))


def filtered(place: Path, links: bool, capsys: Capsys) -> Found:
    allow = [str(passage["_id"]) for passage in PASSAGES[:29]]
    return of_hits(grls.load(place / str(links).lower()).search(QUESTION, k=3, allow=allow))


def hops_of_command(place: Path, links: bool) -> list[str]:
    return [str(place / "bm25"), "--hops.steps=ranked", f"--hops.links={str(links).lower()}", "--k=3"]


def search(place: Path, links: bool, capsys: Capsys) -> Found:
    capsys.readouterr()
    assert main(["search", *hops_of_command(place, links), QUESTION, "--json=true"]) == 0
    return of_records(json.loads(capsys.readouterr().out)["hits"])


def retrieve(place: Path, links: bool, capsys: Capsys) -> Found:
    output = place / f"run-{links}"
    options = [f"--data={place / 'data'}", f"--output={output}"]
    assert main(["retrieve", *hops_of_command(place, links), *options]) == 0
    return dict.fromkeys(hit.id for hit in Run.load(f"{output}.jsonl").rankings["q"])


def http(place: Path, links: bool, capsys: Capsys) -> Found:
    body = {"query": QUESTION, "k": 3}
    with served(place, links) as client:
        return of_records(client.post("/v1/search", json=body).json()["results"][0]["hits"])


def http_stream(place: Path, links: bool, capsys: Capsys) -> Found:
    from serve_helpers import events

    with served(place, links) as client:
        *_, last, _ = events(client.post("/v1/stream", json={"query": QUESTION}).text)
    hop = json.loads(last[1])
    return dict(zip(hop["chain"], hop["links"], strict=True))


def served(place: Path, links: bool) -> Any:
    from serve_helpers import client_of, serving_of

    return client_of(serving_of({"r": place / str(links).lower()}))


def mcp(place: Path, links: bool, capsys: Capsys, tool: str = "search") -> Found:
    client = pytest.importorskip("mcp").Client
    from serve_helpers import serving_of

    from grls.serve.tools.server import tool_server

    async def call() -> Any:
        async with client(tool_server(serving)) as one:
            return await one.call_tool(tool, {"query": QUESTION, "k": 3})

    serving = serving_of({"r": place / str(links).lower()})
    try:
        return of_records(json.loads(asyncio.run(call()).content[0].text)["results"])
    finally:
        serving.close()


def mcp_hops(place: Path, links: bool, capsys: Capsys) -> Found:
    return mcp(place, links, capsys, "hops")


def langchain(place: Path, links: bool, capsys: Capsys) -> Found:
    pytest.importorskip("langchain_core")
    adapter = adapters.LangChainRetriever(searcher=grls.load(place / str(links).lower()), k=3)
    return of_records([document.metadata for document in adapter.invoke(QUESTION)])


def llama_index(place: Path, links: bool, capsys: Capsys) -> Found:
    pytest.importorskip("llama_index.core")
    adapter = adapters.LlamaIndexRetriever(grls.load(place / str(links).lower()), 3)
    return {node.node.node_id: node.metadata.get("links", []) for node in adapter.retrieve(QUESTION)}


def haystack(place: Path, links: bool, capsys: Capsys) -> Found:
    pytest.importorskip("haystack")
    documents = adapters.HaystackRetriever(place / str(links).lower(), 3).run(QUESTION)["documents"]
    return {document.id: document.meta.get("links", []) for document in documents}


def pyterrier(place: Path, links: bool, capsys: Capsys) -> Found:
    pytest.importorskip("pyterrier")
    adapter = adapters.PyTerrierRetriever(grls.load(place / str(links).lower()), 3)
    return dict.fromkeys(adapter.search(QUESTION)["docno"])


DOORS: list[Callable[[Path, bool, Capsys], Found]] = [
    python, asynchronous, streamed, filtered, search, retrieve, http, http_stream, mcp, mcp_hops, langchain,
    llama_index, haystack, pyterrier,
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_a_passage_is_found_by_its_name_at_every_door(
    door: Callable[[Path, bool, Capsys], Found], place: Path, capsys: Capsys
) -> None:
    found = door(place, True, capsys)
    assert found.get("man", "missing") in ([LINK], None)
    without = door(place, False, capsys)
    assert "man" not in without
    assert not any(without.values())


@pytest.mark.parametrize("kind", ["bm25", "dense", "fusion", "rescored", "toy", "generative", "hybrid"])
def test_a_passage_is_found_by_its_name_with_every_retriever(kind: str, place: Path) -> None:
    searcher = grls.load(place / kind, device="cpu")
    found = of_hits(searcher.hops(max=2, done=False).search(QUESTION, k=3))
    assert found["man"] == [LINK]
    assert found["film"] == [{"words": "Blue Moon Rising", "passage": None}]
    why = str(searcher.hops(max=2, done=False).explain(QUESTION, gold="man"))
    assert 'NAMED by "Anna Kalb" in film: after film (probability ' in why
    without = of_hits(searcher.hops(max=2, done=False, links=False).search(QUESTION, k=3))
    assert "man" not in without
    assert not any(without.values())


def test_a_ranking_that_is_read_again_keeps_its_links(place: Path) -> None:
    searcher = grls.load(place / "true", device="cpu").rescored(place / "encoder", weight=0.01)
    assert of_hits(searcher.search(QUESTION, k=3))["man"] == [LINK]


@pytest.mark.parametrize("method", ["sum", "rrf", "interleave"])
def test_a_fusion_keeps_the_links_of_its_members(method: str, place: Path, tmp_path: Path) -> None:
    members = [str(place / "dense"), str(place / "true")]
    fused = written(tmp_path / "fused", {"kind": "fusion", "members": members, "method": method})
    assert of_hits(grls.load(fused, device="cpu").search(QUESTION, k=40))["man"] == [LINK]
