"""Folders of every kind that earlier versions wrote open, and answer as they did then, for ever.

`tests/kept/make.py` writes the folders of a version. What was kept is never written again: a test here that
fails says that a folder of a user would be read otherwise.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.neighbours import Neighbours
from grls.data.types import Query
from grls.index import load_index
from grls.io.files import sha256
from grls.io.jsonl import read_jsonl
from grls.retrieve.folder_check import check_folder
from grls.retrieve.registry import KINDS, Opening, load_retriever
from grls.retrieve.run import retrieve_results
from grls.retrieve.spec import read_spec
from grls.runs.manifest import info_file
from grls.runs.run import Run

KEPT = Path(__file__).parents[1] / "kept"
VERSIONS = sorted(file.parent for file in KEPT.glob("*/answers.jsonl"))
DEPTH, MOST_BYTES = 4, 200 * 2**10
ASKED = [Query("q-otter-calm", "is the otter calm ?"), Query("q-otter-quick", "is the otter quick ?")]
FOLDERS = [
    pytest.param(version, record, id=f"{version.name}-{record['folder']}")
    for version in VERSIONS
    for _, record in read_jsonl(version / "answers.jsonl")
]


@pytest.mark.parametrize(("version", "then"), FOLDERS)
def test_a_kept_folder_opens_and_answers_as_it_did(version: Path, then: dict[str, Any]) -> None:
    folder = version / then["folder"]
    if "tokens" in then:
        index = load_index(folder, "tokenizer", "corpus", verify=True)
        assert [np.asarray(index.tokens(number)).tolist() for number in range(len(index))] == then["tokens"]
        return
    retriever = load_retriever(folder, Opening("cpu", verify=True))
    assert retriever.fingerprint() == then["fingerprint"]
    results = retrieve_results(retriever, ASKED, DEPTH, False, [None] * len(ASKED))
    for one, hits, hops in zip(results, then["hits"], then["hops"], strict=True):
        assert [hit.id for hit in one.hits] == [name for name, _ in hits]
        assert [hit.score for hit in one.hits] == pytest.approx([score for _, score in hits], abs=1e-3)
        assert (None if one.chain is None else [hit.id for hit in one.chain.hits]) == hops


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_kept_data_runs_and_neighbours_are_read(version: Path) -> None:
    corpus = Corpus.read(version / "data")
    assert [one["year"] for one in corpus.metadata()] == list(range(2000, 2000 + len(corpus)))
    asked, qrels = read_split(version / "data", "dev", corpus)
    assert len(asked) == len(qrels) == 2
    assert Neighbours.read(version / "neighbours.safetensors", corpus).of(0) == [1, 2]
    for name in ("run", "run-chains"):
        run, trec = Run.load(version / f"{name}.jsonl"), Run.load(version / f"{name}.trec")
        assert run.info is not None
        assert run.info == trec.info
        assert run.info.corpus == corpus.fingerprint
        assert [[hit.id for hit in hits] for hits in run.rankings.values()] == [
            [hit.id for hit in hits] for hits in trec.rankings.values()
        ]
        assert bool(run.chains) == (name == "run-chains")
        assert info_file(version / name).is_file()


@pytest.mark.parametrize("version", VERSIONS[-1:], ids=lambda version: version.name)
def test_every_kind_is_kept(version: Path) -> None:
    kinds = {read_spec(file.parent)["kind"] for file in version.glob("*/grls.json")}
    assert kinds == set(KINDS)


@pytest.mark.parametrize("version", VERSIONS[-1:], ids=lambda version: version.name)
def test_a_kept_folder_is_whole(version: Path, tmp_path: Path) -> None:
    """``grls check --index`` finds nothing in the simplest folder, of which the others are made."""
    assert check_folder(version / "bm25").faults == []
    shutil.copytree(version / "generative", tmp_path / "generative")
    assert check_folder(tmp_path / "generative").faults == []


def test_what_is_kept_stays_small_and_is_not_changed() -> None:
    files = [path for path in KEPT.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for version in VERSIONS:
        there = sorted(path for path in version.rglob("*") if path.is_file() and path.name != "SHA256")
        sums = "".join(f"{sha256(path)} {path.relative_to(version).as_posix()}\n" for path in there)
        assert hashlib.sha256(sums.encode()).hexdigest() == (version / "SHA256").read_text().strip()
