"""The retriever for LangChain, with langchain-core."""

import asyncio

import pytest

from grls.api.searcher import Searcher
from grls.errors import ConfigError

pytest.importorskip("langchain_core", reason="the extra langchain is not installed")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from grls.adapters import LangChainRetriever


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def test_documents_are_the_hits_with_texts_and_metadata(searcher: Searcher) -> None:
    hits = searcher.search("flies live green ponds", 2)
    documents = LangChainRetriever(searcher=searcher, k=2).invoke("flies live green ponds")
    assert [(d.id, d.page_content) for d in documents] == [(hit.id, hit.text) for hit in hits]
    assert [d.metadata for d in documents] == [
        {"year": 2001, "id": "p2", "score": hits[0].score, "title": "Insects"},
        {"year": 2005, "id": "p3", "score": hits[1].score, "title": "Ponds"},
    ]


def test_k_and_where_of_a_query_override_those_of_the_retriever(searcher: Searcher) -> None:
    retriever = LangChainRetriever(searcher=searcher, k=1, where="year<2000")
    assert ids(retriever.invoke("green ponds")) == ["p1"]
    assert ids(retriever.invoke("green ponds", where="year>=2000")) == ["p3"]
    assert ids(retriever.invoke("green ponds", where="year>=2000", k=5)) == ["p3", "p2"]


def test_the_asynchronous_form_and_batches_find_the_same(searcher: Searcher) -> None:
    retriever = LangChainRetriever(searcher=searcher, k=2)
    queries = ["green ponds", "stone", "zebras"]
    alone = [retriever.invoke(query) for query in queries]

    async def together() -> list[list[Document]]:
        return await asyncio.gather(*(retriever.ainvoke(query) for query in queries))

    assert asyncio.run(together()) == alone
    assert retriever.batch(queries) == alone
    assert ids(asyncio.run(retriever.ainvoke("green ponds", k=1, where="year>=2000"))) == ["p3"]
    assert retriever.invoke(" ") == asyncio.run(retriever.ainvoke("")) == []


def test_it_is_a_part_of_chains_and_calls_back(searcher: Searcher) -> None:
    class Heard(BaseCallbackHandler):
        found: list[Document]

        def on_retriever_end(self, documents: list[Document], **kwargs: object) -> None:
            self.found = documents

    heard = Heard()
    chain = LangChainRetriever(searcher=searcher, k=1) | RunnableLambda(lambda docs: docs[0].page_content)
    assert chain.invoke("stone", config={"callbacks": [heard]}) == "stone walls"
    assert ids(heard.found) == ["p4"]


def test_bad_input_is_refused(searcher: Searcher) -> None:
    with pytest.raises(ConfigError, match="LangChainRetriever: searcher must be a Searcher"):
        LangChainRetriever(searcher="runs/mine")
    with pytest.raises(ConfigError, match="LangChainRetriever has no argument 'wher'; did you mean where"):
        LangChainRetriever(searcher=searcher, wher="year<2000")
    with pytest.raises(ConfigError, match="k must be a whole number"):
        LangChainRetriever(searcher=searcher).invoke("stone", k="3")
    with pytest.raises(ConfigError, match=r"no passage of .* has the metadata field 'yaer'"):
        LangChainRetriever(searcher=searcher, where="yaer>2000").invoke("stone")
