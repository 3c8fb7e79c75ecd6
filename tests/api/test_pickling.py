"""What users hold is pickled and copied, and temporary folders go with the object that they belong to."""

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from small_data import tiny_bert

import grls
from grls.errors import ConfigError, WriteError
from grls.io.files import TemporaryFolder

TEXTS = ["otters eat fish", "owls hunt mice at night", "a bridge hangs from cables", "copper is a metal"]
GOLD = {"0": ["0"], "1": ["1"]}


@pytest.fixture
def searcher(tmp_path: Path) -> grls.Searcher:
    grls.BM25(TEXTS, output=tmp_path / "bm25")
    return grls.load(tmp_path / "bm25", device="cpu")


def copies(value: Any) -> list[Any]:
    return [pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)]


def test_a_searcher_of_any_kind_is_opened_again(searcher: grls.Searcher, tmp_path: Path) -> None:
    held = grls.BM25(TEXTS, output=tmp_path / "own")
    hops = searcher.hops(2, output=tmp_path / "hops")
    fused = grls.fuse([held, hops], output=tmp_path / "fused")
    for one in (searcher, held, hops, fused):
        expected = one.search(["owls", "copper"])
        for again in copies(one):
            assert type(again) is type(one)
            assert again.opening == one.opening
            assert again.lock is not one.lock
            assert again.search(["owls", "copper"]) == expected
        (again,) = pickle.loads(pickle.dumps([one]))
        assert again.search("owls") == expected[0]


def test_a_path_is_read_from_any_working_directory(
    searcher: grls.Searcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sent").write_bytes(pickle.dumps(grls.load("bm25", device="cpu")))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'sent')!r}, 'rb')).search('owls')[0].id)"
    there = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert there.stdout.split() == ["1"]


def test_what_is_in_memory_or_temporary_is_not_pickled() -> None:
    made = grls.BM25(TEXTS)
    updated = made.updated(remove=["3"])
    for one in (made, made.hops(2), updated):
        raises(ConfigError, r"temporary folder.*cannot be pickled.*save\(folder\)", pickle.dumps, one)
    stays, folder = copy.deepcopy(updated), Path(str(updated.folder))
    del one, updated
    gc.collect()
    assert stays.hops(2).search("owls")[0].id == "1"
    assert folder.is_dir()
    del stays
    gc.collect()
    assert not folder.exists()


def test_a_composite_with_an_output_holds_its_temporary_members(tmp_path: Path) -> None:
    sent = pickle.dumps(grls.BM25(TEXTS).hops(2, output=tmp_path / "hops"))
    gc.collect()
    assert pickle.loads(sent).search("owls")[0].id == "1"


def test_adapters_go_with_their_searcher(searcher: grls.Searcher) -> None:
    pytest.importorskip("langchain_core")
    pytest.importorskip("pyterrier")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("haystack")
    pytest.importorskip("mteb")
    import pandas as pd

    from grls import adapters

    frame = pd.DataFrame({"qid": ["a"], "query": ["owls"]})
    asks: list[tuple[Any, Callable[[Any], str]]] = [
        (adapters.LangChainRetriever(searcher=searcher, k=1), lambda one: one.invoke("owls")[0].id),
        (adapters.LlamaIndexRetriever(searcher, k=1), lambda one: one.retrieve("owls")[0].node.node_id),
        (adapters.PyTerrierRetriever(searcher, k=1), lambda one: one.transform(frame)["docno"][0]),
        (adapters.HaystackRetriever(searcher, top_k=1), lambda one: one.run("owls")["documents"][0].id),
        (adapters.MTEBSearch(searcher, k=1), lambda one: one._source.search("owls")[0].id),
    ]
    for adapter, ask in asks:
        for again in copies(adapter):
            assert ask(again) == "1", adapter
    chain = asks[0][0].model_copy(deep=True)
    assert chain.invoke("owls")[0].id == "1"


def test_results_and_models_can_be_pickled(searcher: grls.Searcher, tmp_path: Path) -> None:
    searcher.search("owls")
    held: list[Any] = [
        searcher.search("owls")[0], grls.Query("a", "owls"), list(searcher.hops(2).stream("owls")),
        searcher.explain("owls", ["1"]),
        grls.experiment({"one": searcher}, TEXTS[:2], GOLD, ["R@1"], k=2),
        grls.BiEncoder(str(tiny_bert(tmp_path / "bert"))),
    ]  # fmt: skip
    for value in held:
        for again in copies(value):
            assert repr(again) == repr(value)
    for corpus in copies(searcher.corpus):
        assert corpus.fingerprint == searcher.corpus.fingerprint
        assert list(corpus) == list(searcher.corpus)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


SCRIPT = """
import os, sys, tempfile
from grls.io.files import TemporaryFolder
tempfile.tempdir = sys.argv[1]
owner = TemporaryFolder()
print(os.fspath(owner), flush=True)
"""


def run_script(temporary: Path, more: str = "") -> Path:
    command = [sys.executable, "-c", SCRIPT + more, str(temporary)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(ran.stdout.strip())


def test_a_folder_goes_at_the_end_of_the_process(temporary: Path) -> None:
    assert not run_script(temporary).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_leaves_the_folders_of_its_parent(temporary: Path) -> None:
    more = "import os, gc\nif not os.fork():\n    del owner; gc.collect(); os._exit(0)\nos.wait()\n"
    kept = run_script(temporary, more + "import pathlib; assert list(pathlib.Path(sys.argv[1]).iterdir())\n")
    assert not kept.exists()


def test_a_place_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    (temporary / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "file" / "below"))
    raises(WriteError, r"cannot make a temporary folder.*TMPDIR", TemporaryFolder)
