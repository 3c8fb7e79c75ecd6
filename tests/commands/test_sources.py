"""Every kind of retriever behind the commands that read: one or several, in one step or hop by hop."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ralm_helpers import write_model
from small_data import small_retriever, tiny_bert, write_small

from grls.cli import main
from grls.commands.sources import Named, open_source
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Passage
from grls.errors import ConfigError, MismatchError
from grls.models.biencoder import BiEncoder
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.retriever import FusionRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.multistep import MultistepRetriever
from grls.retrieve.hops.pool import pooled_ranking
from grls.retrieve.registry import open_retriever
from grls.runs.manifest import read_info
from grls.runs.results import read_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, a generative and a dense retriever over it, a language model, a text."""
    path = tmp_path_factory.mktemp("sources")
    data = write_small(path / "data")
    small_retriever(data).save_pretrained(path / "generative")
    torch.manual_seed(0)
    BiEncoder.load(str(tiny_bert(path / "bert")), device="cpu").save(path / "sentence")
    dense = [f"--model={path / 'sentence'}", f"--corpus={data}", f"--output={path / 'dense'}"]
    assert main(["index", *dense, "--device=cpu"]) == 0
    write_model(path / "model", positions=4096)
    (path / "text.txt").write_text("the otter is calm . is the lynx quick ? if something is calm " * 2)
    return path


def named(folder: Path, *members: str, **options: Any) -> Named:
    folders = [str(folder / name) for name in members if name != "bm25"]
    return Named.of(folders, "bm25" in members, **options)


def ids(rankings: Any) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in rankings]


def test_one_retriever_is_what_grls_retrieve_opens(folder: Path) -> None:
    queries = read_split(folder / "data", "test")[0]
    for name, system, probable in (("generative", "generator", True), ("dense", "biencoder", False)):
        source = open_source(named(folder, name), None, "cpu")
        assert source is not None
        assert (source.system, source.label, source.probable) == (system, system, probable)
        alone = open_retriever(folder / name, "cpu")
        assert ids(source.retriever.retrieve(queries, 3)) == ids(alone.retrieve(queries, 3))
    assert open_source(Named(()), None, "cpu") is None


def test_several_are_fused_as_asked(folder: Path) -> None:
    queries, data = read_split(folder / "data", "test")[0], str(folder / "data")
    members = [open_retriever(folder / "dense", "cpu"), BM25Retriever(Corpus.read(data))]
    for options in ({}, {"fusion": "rrf", "weights": [0.2, 0.8]}):
        asked = named(folder, "dense", "bm25", **options)
        source = open_source(asked, data, "cpu")
        assert source is not None
        fusion = Fusion(asked.fusion, weights=asked.weights)
        expected = FusionRetriever(members, fusion).retrieve(queries, 4)
        assert source.retriever.retrieve(queries, 4) == expected
        assert (source.system, source.label, source.score_mode) == (
            "ensemble", "biencoder + bm25", fusion.score_mode
        )  # fmt: skip
        assert not source.probable
    assert ids(expected) != ids(members[0].retrieve(queries, 4))


def test_hop_by_hop(folder: Path) -> None:
    queries = read_split(folder / "data", "test")[0]
    asked = named(folder, "generative", steps="fixed", chain_hops=3)
    source = open_source(asked, None, "cpu")
    assert source is not None
    opened = open_retriever(folder / "generative", "cpu")
    chains = MultistepRetriever(opened, 3, False).retrieve_chains(queries)  # type: ignore[arg-type]
    assert source.retriever.retrieve(queries, 4) == [pooled_ranking(some, 4) for some in chains]
    assert (source.label, source.score_mode, source.probable) == ("generator in 3 hops", "pooled", False)
    found = open_source(named(folder, "bm25", "dense", steps="fixed"), str(folder / "data"), "cpu")
    assert found is not None
    assert found.label == "biencoder in 2 hops + bm25 in 2 hops"
    assert {len(hits) for hits in found.retriever.retrieve(queries, 5)} == {5}  # filled up
    biased = named(folder, "generative", steps="dynamic", chain_hops=4, done_bias=-30.0)
    dynamic = open_source(biased, None, "cpu")
    assert dynamic is not None
    chains = MultistepRetriever(opened, 4, True, done_bias=-30.0).retrieve_chains(queries)  # type: ignore[arg-type]
    assert dynamic.retriever.retrieve(queries, 9) == [pooled_ranking(some, 9) for some in chains]


def rebuilt(folder: Path, place: Path, name: str) -> Path:
    """A retriever of other weights over the same corpus, in a folder that had the one of ``folder``."""
    shutil.copytree(folder / name, place / name)
    if name == "generative":
        other = GenerativeRetriever.from_pretrained(folder / name, "cpu")
        with torch.no_grad():
            next(other.model.parameters()).add_(0.1)
        other.save_pretrained(place / name)
    else:
        torch.manual_seed(1)
        BiEncoder.load(str(tiny_bert(place / "bert")), device="cpu").save(place / "sentence")
        made = [f"--model={place / 'sentence'}", f"--corpus={folder / 'data'}", f"--output={place / name}"]
        assert main(["index", *made, "--device=cpu"]) == 0
    return place / name


@pytest.mark.parametrize("name", ["generative", "dense"])
def test_a_run_does_not_go_on_with_another_retriever_of_that_name(
    folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / name, tmp_path / "r")
    run = [
        "read", f"--data={folder / 'data'}", f"--model={folder / 'model'}", "--max_new_tokens=2",
        "--device=cpu", f"--retriever={tmp_path / 'r'}", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    assert main(run) == 0
    assert main(run) == 0  # nothing has changed
    other = rebuilt(folder, tmp_path / "other", name)
    shutil.rmtree(tmp_path / "r")
    other.rename(tmp_path / "r")
    assert main(run) == 1
    assert "other settings (retriever_fingerprint)" in capsys.readouterr().err


def test_what_is_as_usual_is_not_among_the_settings(folder: Path) -> None:
    """So that runs go on that were begun before there was a choice."""
    assert Named(()).settings() == {"retriever": None}
    assert Named.of("a", False).settings() == Named.of(["a"], False).settings() == {"retriever": "a"}
    assert Named((), True).settings() == {"retriever": "bm25"}
    several = Named.of(["a", "b"], True, "dynamic", None, -1.0, "sum", [1, 2, 3])
    assert several.settings() == {
        "retriever": ["a", "b", "bm25"], "fusion": "sum", "weights": [1, 2, 3], "steps": "dynamic",
        "chain_hops": 2, "done_bias": -1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chain_hops": 2}, "goes with --steps"),
        ({"chain_hops": 0, "steps": "fixed"}, "--chain_hops must be at least 1"),
        ({"done_bias": 1.0, "steps": "fixed"}, "--steps dynamic"),
        ({"fusion": "rrf"}, "fuse several retrievers"),
        ({"weights": [1.0]}, "fuse several retrievers"),
        ({"retriever": None, "steps": "fixed"}, "give --retriever FOLDER or --bm25 true"),
        ({"retriever": ["a", "b"], "weights": [1.0], "fusion": "rrf"}, "1 weights for 2 retrievers"),
        ({"retriever": ["a", "b"], "weights": [1.0, 2.0]}, "interleaving takes no weights"),
        ({"retriever": ["a", "a"]}, "named twice"),
    ],
)
def test_options_without_an_effect_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Named.of(**{"retriever": "a", "bm25": False, **options})


def test_what_cannot_be_opened_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--bm25 needs --data"):
        open_source(Named((), True), None, "cpu")
    with pytest.raises(ConfigError, match="BM25 never writes DONE"):
        open_source(Named((), True, "dynamic"), str(folder / "data"), "cpu")
    Corpus.from_passages([Passage("x", "another one")]).write(tmp_path / "corpus.jsonl")
    with pytest.raises(MismatchError, match="members of an ensemble"):
        open_source(named(folder, "dense", "bm25"), str(tmp_path), "cpu")
    with pytest.raises(MismatchError, match="over another corpus"):
        open_source(named(folder, "dense"), str(tmp_path), "cpu", split="test")


EVERY = (
    ["--retriever={generative}"],
    ["--retriever={dense}", "--steps=dynamic"],
    ["--retriever", "{generative}", "{dense}", "--bm25=true", "--fusion=rrf", "--weights", "1", "2", "0.5"],
    ["--retriever={dense}", "--bm25=true", "--steps=fixed", "--chain_hops=2"],
)


def given(folder: Path, options: list[str]) -> list[str]:
    return [option.format(generative=folder / "generative", dense=folder / "dense") for option in options]


@pytest.mark.parametrize("number", range(len(EVERY)))
def test_every_command_takes_every_retriever(folder: Path, tmp_path: Path, number: int) -> None:
    data, model = f"--data={folder / 'data'}", str(folder / "model")
    source = given(folder, EVERY[number])
    ralm = ["--window=96", "--document_tokens=24", "--cut=8", f"--text={folder / 'text.txt'}"]
    common = [data, "--device=cpu", *source]
    assert main(["ralm", f"--model={model}", f"--output={tmp_path}/a", *ralm, *common]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a.strides.jsonl").read_text().splitlines()]
    assert any(row["passages"] for row in rows[1:])
    assert main(["ralm", f"--model={model}", f"--output={tmp_path}/a", *ralm, *common]) == 0  # goes on
    read = [f"--model={model}", f"--output={tmp_path}/b", "--max_new_tokens=2", *common]
    assert main(["read", *read]) == 0
    info = read_info(tmp_path / "b.jsonl")
    assert info is not None
    labels = (
        "generator",
        "biencoder in hops until DONE",
        "generator + biencoder + bm25",
        "biencoder in 2 hops + bm25 in 2 hops",
    )
    assert info.name == f"retrieve, {labels[number]}, k=3"
    assert all(read_results(f"{tmp_path}/b.jsonl").rankings.values())


@pytest.mark.parametrize("number", range(len(EVERY)))
def test_programs_take_every_retriever(folder: Path, tmp_path: Path, number: int) -> None:
    pytest.importorskip("dspy", reason="the extra dsp is not installed")
    asked = [f"--data={folder / 'data'}", f"--lm={folder / 'model'}", "--max_new_tokens=2", "--wait=0"]
    source = given(folder, EVERY[number])
    run = ["program", "run", "retrieve-then-read", *asked, f"--output={tmp_path}/p", "--device=cpu"]
    assert main([*run, *source]) == 0
    rankings = read_results(f"{tmp_path}/p.jsonl").rankings
    assert rankings
    assert all(rankings.values())
