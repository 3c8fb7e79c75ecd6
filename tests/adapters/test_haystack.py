"""The component of Haystack, with haystack-ai."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from failing import raises

from grls.api.opening import load
from grls.api.searcher import Searcher
from grls.errors import ConfigError, DataError

pytest.importorskip("haystack", reason="the extra haystack is not installed")

from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.errors import FilterError

from grls.adapters import HaystackRetriever

SINCE_2000 = {"field": "meta.year", "operator": ">=", "value": 2000}


def ids(result: dict[str, list[Document]]) -> list[str]:
    return [document.id for document in result["documents"]]


def test_documents_are_the_hits_with_texts_and_metadata(searcher: Searcher) -> None:
    hits = searcher.search("flies live green ponds", 2)
    result = HaystackRetriever(searcher, top_k=2).run("flies live green ponds")
    assert [(d.id, d.score, d.content) for d in result["documents"]] == [
        (h.id, h.score, h.text) for h in hits
    ]
    assert [document.meta for document in result["documents"]] == [
        {"year": 2001, "title": "Insects", "score": 3, "id": "x"}, {"year": 2005, "title": "Ponds"},
    ]  # fmt: skip


def test_arguments_of_a_query_replace_those_of_the_component(searcher: Searcher) -> None:
    component = HaystackRetriever(searcher, top_k=1, where="year<2000")
    assert ids(component.run("green ponds")) == ["p1"]
    assert ids(component.run("green ponds", where="year>=2000", top_k=5)) == ["p3", "p2"]
    component = HaystackRetriever(searcher, filters=SINCE_2000)
    assert ids(component.run("green ponds")) == ["p3", "p2"]
    assert ids(component.run("green ponds", filters=SINCE_2000 | {"operator": "<"})) == ["p1"]
    assert ids(component.run("green ponds", filters={})) == ["p3", "p1", "p2"]


FILTERS: list[dict[str, Any]] = [
    SINCE_2000, {"field": "meta.year", "operator": "!=", "value": 1999},
    {"field": "meta.year", "operator": "not in", "value": [1999, 2001]},
    {"field": "meta.title", "operator": "==", "value": "Insects"},
    {"field": "id", "operator": "in", "value": ["p1", "p4"]},
    {"field": "content", "operator": "==", "value": "stone walls"},
    {"operator": "NOT", "conditions": [SINCE_2000]},
    {"operator": "OR", "conditions": [SINCE_2000, {"field": "id", "operator": "==", "value": "p4"}]},
    {"field": "meta.year", "operator": "==", "value": 1},
]  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_mean_what_they_mean_in_haystack(filters: dict[str, Any], searcher: Searcher) -> None:
    """Its document store is the reference."""
    query = "green ponds flies stone"
    store = InMemoryDocumentStore()
    store.write_documents(HaystackRetriever(searcher).run(query)["documents"])
    expected = [document.id for document in store.filter_documents(filters)]
    assert sorted(ids(HaystackRetriever(searcher).run(query, filters=filters))) == sorted(expected)


def test_the_asynchronous_form_finds_the_same(searcher: Searcher) -> None:
    component = HaystackRetriever(searcher, top_k=2)

    async def together() -> list[dict[str, list[Document]]]:
        return await asyncio.gather(*(component.run_async(query) for query in ("green ponds", "stone")))

    assert asyncio.run(together()) == [component.run("green ponds"), component.run("stone")]
    assert ids(asyncio.run(component.run_async("green ponds", 5, SINCE_2000))) == ["p3", "p2"]
    assert asyncio.run(component.run_async("")) == {"documents": []}


def test_a_pipeline_runs_it_and_is_saved_with_its_folder(searcher: Searcher, folder: Path) -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", HaystackRetriever(searcher, 1, SINCE_2000, "year<2003"))
    pipeline.add_component("prompt", PromptBuilder("{{ documents[0].content }}?", required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    asked = {"retriever": {"query": "green ponds"}}
    answer = pipeline.run(asked)
    assert answer == {"prompt": {"prompt": "flies live near ponds?"}}

    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["grls.*"])
    component = loaded.get_component("retriever")
    assert component.retriever == str(folder)  # opened when it is used
    assert loaded.run(asked) == answer
    assert isinstance(component.retriever, Searcher)
    assert loaded.dumps() == pipeline.dumps()


def test_a_retriever_that_will_go_is_no_part_of_a_saved_pipeline(searcher: Searcher) -> None:
    component = HaystackRetriever(Searcher(searcher.retriever))
    assert ids(component.run("stone")) == ["p4"]
    raises(ConfigError, "is temporary", component.to_dict)


def test_a_folder_is_opened_as_its_searcher_was(searcher: Searcher, folder: Path) -> None:
    opened = HaystackRetriever(load(folder, device="cpu", precision="bfloat16")).to_dict()
    assert opened == HaystackRetriever(str(folder), device="cpu", precision="bfloat16").to_dict()
    again = HaystackRetriever.from_dict(opened)
    again.warm_up()
    assert (again.retriever.opening.device, again.retriever.opening.precision) == ("cpu", "bfloat16")


def test_bad_input_is_refused(searcher: Searcher, tmp_path: Path) -> None:
    with pytest.raises(FilterError):
        HaystackRetriever(searcher).run("stone", filters={"field": "meta.year", "operator": "~", "value": 1})
    raises(DataError, "nowhere", HaystackRetriever(str(tmp_path / "nowhere")).warm_up)


@pytest.mark.parametrize(
    ("argument", "value"), [("query", ["a"]), ("filters", 5), ("top_k", 0), ("where", 1)]
)
def test_wrong_arguments_of_a_query_are_named(searcher: Searcher, argument: str, value: Any) -> None:
    component = HaystackRetriever(searcher)
    with pytest.raises(ConfigError, match=f"HaystackRetriever.run: {argument} must be"):
        component.run(**{"query": "ponds", argument: value})
    with pytest.raises(ConfigError, match=f"HaystackRetriever.run: {argument} must be"):
        asyncio.run(component.run_async(**{"query": "ponds", argument: value}))
