"""The plain copy of a generator whose file is compressed: made once, opened, and removed."""

import json
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import fit_options, write_fit_data, write_fit_models

from grls.fitting import models, stages
from grls.fitting.models import COPY, make_copy, opened_name
from grls.fitting.run import fit_dataset
from grls.models.load.language import CausalLM, weights_fingerprint


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plain")
    write_fit_data(root / "data")
    return root


@pytest.fixture(scope="module")
def llama(place: Path) -> str:
    return str(write_fit_models(place, place / "data")["generator"])


@pytest.fixture
def compressed(llama: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny model, as if it were a compressed file."""
    file = Path(llama) / "model.safetensors"
    monkeypatch.setattr(models, "compressed_file", lambda name: file if name == llama else None)
    return llama


def test_the_copy_has_the_same_weights_and_tokens(compressed: str, tmp_path: Path) -> None:
    assert opened_name(compressed, tmp_path) == compressed
    make_copy(compressed, tmp_path)
    copy = opened_name(compressed, tmp_path)
    assert copy == str(tmp_path / COPY)
    (one, tokens), (other, same) = CausalLM(compressed).load(), CausalLM(copy).load()
    assert weights_fingerprint(one) == weights_fingerprint(other)
    text = "is the otter calm ?"
    assert tokens(text)["input_ids"] == same(text)["input_ids"]
    assert opened_name("another", tmp_path) == "another"


def test_a_model_of_plain_weights_has_no_copy(llama: str, tmp_path: Path) -> None:
    make_copy(llama, tmp_path)
    assert not (tmp_path / COPY).exists()


def test_a_run_opens_the_copy_and_names_the_model(
    place: Path, compressed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    train = stages.FitStages._train_writer

    def trained(self: stages.FitStages, *more: Any) -> Any:
        opened.append(opened_name(compressed, self.output))
        return train(self, *more)

    monkeypatch.setattr(stages.FitStages, "_train_writer", trained)
    output = tmp_path / "out"
    options = fit_options(biencoder="none", generator=compressed, keep="hybrid")
    fitted = fit_dataset(str(place / "data"), output, options, shown=False)
    assert opened == [str(output / COPY)]
    assert not (output / COPY).exists()
    assert "hybrid" in fitted.metrics
    assert json.loads((output / "fit.json").read_text())["base_models"] == [compressed]
    assert COPY not in (output / "README.md").read_text()
