"""The examples of docs/adapters.md, as they stand there, and adapters without their packages."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from grls import adapters
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.retrieve.bm25 import BM25Retriever

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
PASSAGES = [Passage("0", "Otters eat fish."), Passage("1", "A holt is an otter's den.")]
PACKAGES = {
    "HaystackRetriever": ("haystack", "haystack"), "LangChainRetriever": ("langchain_core", "langchain"),
    "LlamaIndexRetriever": ("llama_index.core", "llama-index"), "MTEBSearch": ("mteb", "mteb"),
    "MTEBTask": ("mteb", "mteb"), "PyTerrierRetriever": ("pyterrier", "pyterrier"),
}  # fmt: skip
"""Adapter -> the package that it imports, and the extra that brings it."""


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
    pytest.importorskip(
        PACKAGES[example.adapters[0]][0], reason="the package of the adapter is not installed"
    )
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


def run(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_error_says_which_extra_to_install() -> None:
    code = f"""
import sys
from grls import adapters
from grls.errors import ConfigError
for name, (package, _) in {PACKAGES!r}.items():
    sys.modules[package] = None
    try:
        getattr(adapters, name)
    except ConfigError as error:
        print(error)
"""
    told = run(code)
    assert len(told) == len(PACKAGES)
    for line, (package, extra) in zip(told, PACKAGES.values(), strict=True):
        assert re.search(rf"pip install .grls\[{extra}\]", line)
        assert package in line


def test_the_packages_are_imported_when_an_adapter_is_used() -> None:
    names = [package for package, _ in PACKAGES.values()]
    code = "import sys\nimport grls.adapters, grls.api.searcher\n"
    assert run(f"{code}print([name for name in {names} if name in sys.modules])") == ["[]"]
