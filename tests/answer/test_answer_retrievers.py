"""Every kind of retriever behind the commands that read, with all that its folder says."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from composite_specs import write_spec
from failing import fails, raises
from ralm_helpers import write_model
from small_data import small_retriever, tiny_bert, write_small

from grls.answer.retrievers import description_of, open_for_reading, retrieval_settings
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Passage, Query
from grls.errors import DataError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.base import Retriever, has_log_probabilities
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, pooled_ranking
from grls.retrieve.registry import Opening, load_named, load_retriever
from grls.retrieve.spec import update_spec

COMPOSITES: dict[str, dict[str, Any]] = {
    "hybrid": {"generator": "../generative", "priors": [{"retriever": "bm25", "weight": 3.0}]},
    "fusion": {"members": ["../dense", "bm25"], "method": "rrf", "weights": [0.2, 0.8]},
    "hops": {"retriever": "../dense", "hops": {"steps": "fixed", "max": 2}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, retrievers of every kind over it, a language model."""
    path = tmp_path_factory.mktemp("sources")
    data = write_small(path / "data")
    small_retriever(data).save_pretrained(path / "generative")
    torch.manual_seed(0)
    BiEncoderModel.load(str(tiny_bert(path / "bert")), device="cpu").save(path / "sentence")
    dense = [f"{path / 'sentence'}", f"--corpus={data}", f"--output={path / 'dense'}"]
    assert main(["index", *dense, "--device=cpu"]) == 0
    for kind, content in COMPOSITES.items():
        write_spec(path / kind, kind, content)
    write_model(path / "model", positions=4096)
    return path


def opened(folder: Path, name: str, hops: HopOptions | None = None) -> Retriever:
    corpus = Corpus.read(folder / "data")
    found = open_for_reading(name if name == "bm25" else str(folder / name), hops, "cpu", corpus)
    assert found is not None
    return found


def test_a_folder_called_bm25_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, corpus = (Corpus.from_passages([Passage("a", text)], text) for text in ("a river", "a hill"))
    monkeypatch.chdir(tmp_path)
    over = open_for_reading("bm25", None, "cpu", corpus, same=False)
    assert over is not None
    assert over.corpus is corpus
    BM25Retriever(own).save_pretrained("bm25")
    for given in (None, corpus):
        found = open_for_reading("bm25", None, "cpu", given, same=False)
        assert found is not None
        assert found.corpus.fingerprint == own.fingerprint
    raises(MismatchError, "over another corpus .* than a hill", open_for_reading, "bm25", None, "cpu", corpus)


def asked(folder: Path) -> list[Query]:
    return read_split(folder / "data", "test")[0]


KINDS = ("generative", "dense", "bm25", *COMPOSITES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_gets_what_the_folder_retrieves(folder: Path, kind: str) -> None:
    found, corpus = opened(folder, kind), Corpus.read(folder / "data")
    alone = load_named("bm25" if kind == "bm25" else str(folder / kind), corpus, Opening("cpu"))
    assert found.retrieve(asked(folder), 4) == alone.retrieve(asked(folder), 4)
    assert has_log_probabilities(found) == (kind == "generative")
    assert description_of(found).score_mode == ("pooled" if kind == "hops" else alone.describe().score_mode)
    assert retrieval_settings(kind, found)["retriever_options"] == found.describe().options
    others = [opened(folder, other).fingerprint() for other in KINDS if other != kind]
    assert found.fingerprint() not in others


def test_what_a_folder_says_of_its_search_is_heeded_and_queries_are_cut(folder: Path, tmp_path: Path) -> None:
    """In a composite kind, too, whose own folder says nothing."""
    for name in ("generative", "hybrid", "data"):
        shutil.copytree(folder / name, tmp_path / name)
    update_spec(tmp_path / "generative", {"search": {"beams": 1}})
    long = Query("long", "is the otter calm ? " * 100)
    with pytest.raises(DataError):
        load_retriever(tmp_path / "generative", Opening("cpu")).retrieve([long], 1)
    for name in ("generative", "hybrid"):
        told = opened(tmp_path, name).describe().options
        assert (told["beams"], told["truncate_queries"]) == (1, True)
        assert len(opened(tmp_path, name).retrieve([long], 1)[0]) == 1
    assert len(opened(folder, "dense").retrieve([long], 1)[0]) == 1


def test_hop_by_hop(folder: Path) -> None:
    queries = asked(folder)
    generator: Any = load_retriever(folder / "generative", Opening("cpu"))
    for hops in (HopOptions("fixed", 3), HopOptions("dynamic", 4, done_bias=-30.0)):
        found = opened(folder, "generative", hops)
        plain = HopsRetriever(generator, hops)
        assert found.retrieve(queries, 4) == [pooled_ranking(c, 4) for c in plain.retrieve_chains(queries)]
        assert (description_of(found).score_mode, has_log_probabilities(found)) == ("pooled", False)
    assert opened(folder, "generative", HopOptions("fixed", 3)).describe().name == "generator in 3 hops"
    filled = opened(folder, "dense", HopOptions("fixed", 2)).retrieve(queries, 5)
    assert {len(hits) for hits in filled} == {5}


def test_hops_that_are_asked_for_replace_those_of_the_folder(folder: Path) -> None:
    assert opened(folder, "hops").describe().name == "biencoder in 2 hops"
    asked_for, plain = opened(folder, "hops", HopOptions("fixed", 1)), opened(folder, "dense")
    assert asked_for.describe().name == "biencoder in 1 hop"
    first = [hits[0].id for hits in asked_for.retrieve(asked(folder), 3)]
    assert first == [hits[0].id for hits in plain.retrieve(asked(folder), 3)]


def test_a_single_step_that_is_asked_for_replaces_hops_of_the_folder(folder: Path) -> None:
    single = opened(folder, "hops", HopOptions("single"))
    assert single.describe().name == "biencoder"
    ranked = opened(folder, "hops", HopOptions("ranked", 2))
    assert description_of(ranked).score_mode == "probability in chains"
    assert single.retrieve(asked(folder), 3) == opened(folder, "dense").retrieve(asked(folder), 3)


def test_a_run_does_not_go_on_with_another_retriever_of_that_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "generative", tmp_path / "r")
    run = [
        "answer", "direct", f"--data={folder / 'data'}", f"--model={folder / 'model'}",
        "--reader.max_new_tokens=2",
        "--device=cpu", f"--retriever={tmp_path / 'r'}", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    assert main(run) == 0
    assert main(run) == 0  # nothing has changed
    other = GenerativeRetriever.from_pretrained(tmp_path / "r", "cpu")
    with torch.no_grad():
        next(other.model.parameters()).add_(0.1)
    other.save_pretrained(tmp_path / "r")
    assert "other settings (retriever_fingerprint)" in fails(capsys, *run)
