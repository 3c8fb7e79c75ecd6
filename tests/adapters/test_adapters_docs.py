"""The examples of docs/adapters.md, as they stand there."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from grls import adapters
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.retrieve.bm25 import BM25Retriever

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
PASSAGES = [Passage("0", "Otters eat fish."), Passage("1", "A holt is an otter's den.")]
PACKAGES = {
    "HaystackRetriever": "haystack", "LangChainRetriever": "langchain_core",
    "LlamaIndexRetriever": "llama_index.core", "MTEBSearch": "mteb", "MTEBTask": "mteb",
    "PyTerrierRetriever": "pyterrier",
}  # fmt: skip
"""Adapter -> the package that it needs."""


class Example(NamedTuple):
    adapters: tuple[str, ...]
    code: str
    printed: str


def examples() -> list[Example]:
    """Each example of the page with what it prints, if that follows it."""
    block = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    found = re.findall(block, PAGE, re.MULTILINE | re.DOTALL)
    assert (len(found), len([out for _, out in found if out])) == (
        PAGE.count("```python"), PAGE.count("```text"),
    )  # fmt: skip
    return [
        Example(tuple(re.findall(r"from grls.adapters import (.+)", code)[0].split(", ")), code, out)
        for code, out in found
    ]


def test_every_adapter_has_an_example() -> None:
    shown = {adapter for example in examples() for adapter in example.adapters}
    assert shown == set(adapters.__all__) == set(PACKAGES)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.adapters[-1])
def test_an_example_prints_what_the_page_says(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(PACKAGES[example.adapters[0]], reason="the package of the adapter is not installed")
    monkeypatch.chdir(tmp_path)
    corpus = Corpus.from_passages(PASSAGES, metadata=[{"year": 1999}, {"year": 2004}])
    BM25Retriever(corpus).save_pretrained("runs/otters")
    query = Query("q", "the den of an otter that eats fish", ("0", "1"))
    write_dataset("data/otters", PASSAGES, [query], {"test": {"q": {"0": 1, "1": 1}}})
    if "MTEBSearch" in example.adapters:
        without_downloads(monkeypatch, tmp_path)
    exec(compile(example.code, "docs/adapters.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == example.printed


def without_downloads(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The tasks of MTEB are one over the passages, and its results are kept in a folder."""
    import mteb
    from mteb_tasks import retrieval_task

    rows = [{"id": passage.id, "text": passage.text} for passage in PASSAGES]
    queries = [{"id": "q", "text": "holt"}]
    evaluate = mteb.evaluate
    monkeypatch.setattr(
        mteb, "get_tasks",
        lambda tasks: [retrieval_task(rows, queries, {"q": {"1": 1}}, name=name) for name in tasks],
    )  # fmt: skip
    kept = mteb.ResultCache(folder / "mteb")
    monkeypatch.setattr(mteb, "evaluate", lambda model, tasks: evaluate(model, tasks, cache=kept))
