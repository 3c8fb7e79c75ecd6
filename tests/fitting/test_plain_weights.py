"""The plain copy of a generator whose file is compressed: made once, opened, and removed."""

import json
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import fit_options, write_fit_data, write_fit_models
from test_run_fit import Killed, killed_in_training

from grls.fitting import plain, trainings
from grls.fitting.machine import Machine
from grls.fitting.measure import Bench
from grls.fitting.models import BaseModel, BaseModels
from grls.fitting.plain import COPY, copy_size, make_copy, opened_name, remove_copy
from grls.fitting.planner import models_that_fit
from grls.fitting.run import fit_dataset
from grls.fitting.speeds import WriterSpeeds
from grls.models.load.language import CausalLM, weights_fingerprint

FAST = WriterSpeeds(0.1, 0.01, 0.01, 0.01, 0.001)


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
    monkeypatch.setattr(plain, "compressed_file", lambda name: file if name == llama else None)
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
    remove_copy(tmp_path)
    assert opened_name(compressed, tmp_path) == compressed


def test_a_model_of_plain_weights_has_no_copy(llama: str, tmp_path: Path) -> None:
    make_copy(llama, tmp_path)
    assert not (tmp_path / COPY).exists()
    assert copy_size(llama) == 0


def test_the_copy_counts_among_what_the_disk_must_hold(
    place: Path, compressed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_planner import facts

    machine = Machine(2, True, 16.0, "", 0.0, 6.5)
    models = BaseModels(None, BaseModel(compressed, "folder"), {})
    assert models_that_fit(models, machine, facts()).generator is not None
    monkeypatch.setattr("grls.fitting.planner.copy_size", lambda name: 0.7)
    left = models_that_fit(models, machine, facts())
    assert left.without["generator"].startswith("6.5 GiB of disk are free, and its training takes 7")


def test_a_run_opens_the_copy_and_names_the_model(
    place: Path, compressed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def measured(self: Bench, model: BaseModel, source: str | None = None) -> WriterSpeeds:
        opened.append(str(source))
        return FAST

    train = trainings.train_writer

    def trained(work: Any, *more: Any) -> Any:
        opened.append(trainings.opened_name(compressed, work.output))
        return train(work, *more)

    monkeypatch.setattr(Bench, "writer", measured)
    monkeypatch.setattr(trainings, "train_writer", trained)
    killed_in_training(monkeypatch, 1)
    options = fit_options(biencoder="none", generator=compressed)
    output = tmp_path / "out"
    with pytest.raises(Killed):
        fit_dataset(str(place / "data"), output, options, shown=False)
    assert (output / COPY).is_dir()
    fitted = fit_dataset(str(place / "data"), output, options, shown=False)
    assert opened == [str(output / COPY)] * 3
    assert not (output / COPY).exists()
    assert "hybrid" in fitted.metrics
    content = json.loads((output / "fit.json").read_text())
    assert content["models"]["generator"] == compressed
    assert COPY not in (output / "README.md").read_text()
