"""The retriever for LlamaIndex, with llama-index-core."""

import asyncio

import pytest

from grls.api.searcher import Searcher

pytest.importorskip("llama_index.core", reason="the extra llama-index is not installed")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from grls.adapters import LlamaIndexRetriever


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [node.node_id for node in nodes]


def test_nodes_are_the_hits_with_texts_and_metadata(searcher: Searcher) -> None:
    hits = searcher.search("flies live green ponds", 2)
    nodes = LlamaIndexRetriever(searcher, k=2).retrieve("flies live green ponds")
    assert [(n.node_id, n.score, n.node.text) for n in nodes] == [(h.id, h.score, h.text) for h in hits]
    assert [node.metadata for node in nodes] == [
        {"year": 2001, "title": "Insects", "score": 3, "id": "x"}, {"year": 2005, "title": "Ponds"},
    ]  # fmt: skip
    assert "title: Insects" in nodes[0].node.get_content(MetadataMode.LLM)


def test_k_and_where_are_those_of_the_retriever(searcher: Searcher) -> None:
    assert ids(LlamaIndexRetriever(searcher, k=1).retrieve("green ponds")) == ["p3"]
    assert ids(LlamaIndexRetriever(searcher, where="year<2000").retrieve("green ponds")) == ["p1"]


def test_the_asynchronous_form_finds_the_same(searcher: Searcher) -> None:
    retriever = LlamaIndexRetriever(searcher, k=2)
    queries = ["green ponds", "stone", "zebras"]

    async def together() -> list[list[NodeWithScore]]:
        return await asyncio.gather(*(retriever.aretrieve(query) for query in queries))

    assert asyncio.run(together()) == [retriever.retrieve(QueryBundle(query)) for query in queries]
    assert asyncio.run(retriever.aretrieve("")) == []
    filtered = LlamaIndexRetriever(searcher, k=1, where="year<2000")
    assert ids(asyncio.run(filtered.aretrieve("green ponds"))) == ["p1"]


def test_a_query_engine_reads_its_nodes(searcher: Searcher) -> None:
    engine = RetrieverQueryEngine.from_args(LlamaIndexRetriever(searcher, k=2), llm=MockLLM())
    answer = engine.query("green ponds")
    assert ids(answer.source_nodes) == ["p3", "p1"]
    assert "ponds hold green green water" in str(answer)
