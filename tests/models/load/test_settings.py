"""What a model computes by beside its weights: noticed where it changed, refused where it cannot be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composite_specs import write_spec
from failing import raises
from small_data import scratch

from grls.answer.writer import TextWriter
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.errors import ConfigError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.models.load.language import load_language_model
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import Opening, load_retriever, open_kind

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]
CPU = Opening(device="cpu")


@pytest.fixture(scope="module")
def made(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generative, a dense and an st5 retriever over one corpus, and a fusion of the first two."""
    place = tmp_path_factory.mktemp("settings")
    for name in ("data", "bert", "generative", "dense"):
        shutil.copytree(kinds / name, place / name)
    corpus = Corpus.read(place / "data")
    torch.manual_seed(0)
    st5 = BiEncoderModel.from_generator(scratch(place / "data").load(), 64)
    DenseRetriever.assemble(st5, corpus).save_pretrained(place / "st5")
    members = {"members": ["../dense", "../generative"], "method": "rrf"}
    write_spec(place / "fusion", "fusion", members)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "made"))


def edit(file: Path, **values: Any) -> None:
    """Change fields of a JSON file; ``None`` of a field takes it out."""
    content = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))


@pytest.mark.parametrize(("kind", "name", "values"), [
    ("generative", "config.json", {"layer_norm_epsilon": 0.1}),
    ("dense", "1_Pooling/config.json", {"pooling_mode": "cls"}),
    ("dense", "tokenizer_config.json", {"do_lower_case": False}),
])  # fmt: skip
def test_a_changed_setting_is_refused_by_its_file(
    place: Path, kind: str, name: str, values: dict[str, Any]
) -> None:
    edit(place / kind / "model" / name, **values)
    for verify in (None, False):  # also by its size alone
        for folder in (kind, "fusion"):
            with pytest.raises(MismatchError, match=rf"{kind}/model/{name}: it has changed.*`grls index`"):
                load_retriever(place / folder, Opening(device="cpu", verify=verify))


def test_a_model_that_is_a_link_to_another_place_is_not_searched_for_settings(place: Path) -> None:
    """Every folder of the machine was looked through, and the search ended in a FileNotFoundError."""
    for kind in ("dense", "generative"):
        shutil.rmtree(place / kind / "model")
        (place / kind / "model").symlink_to("/")
        raises(MismatchError, rf"{kind}/model/.*: the file is missing", load_retriever, place / kind, CPU)


@pytest.mark.parametrize(("name", "value"), [
    *(("generation_config.json", value) for value in ("x", -1, 1.5, True)),
    *(("config.json", value) for value in ("0", 10**9, [0], float("nan"))),
])  # fmt: skip
def test_a_start_token_that_is_none_is_one_error(place: Path, name: str, value: Any) -> None:
    model = place / "generative" / "model"
    edit(model / "generation_config.json", decoder_start_token_id=...)
    edit(model / name, decoder_start_token_id=value)
    opens: list[Callable[[], Any]] = [
        lambda: BiEncoderModel.load(str(model), "st5", "cpu"),
        lambda: load_language_model(str(model), "cpu"),
    ]
    for opened in opens:
        raises(ConfigError, r"decoder_start_token_id .*expected.*correct it", opened)


def test_a_language_model_whose_config_alone_names_the_start_writes(place: Path) -> None:
    model, written = place / "generative" / "model", []
    for values in ({}, {"decoder_start_token_id": ...}):
        edit(model / "generation_config.json", **values)
        loaded, tokenizer = load_language_model(str(model), "cpu")
        written.append(TextWriter(loaded, tokenizer, 4, 2).write([[5, 6, 7], [9, 8]]))
    assert written[0] == written[1]


def test_embeddings_of_other_settings_are_not_gone_on_with(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, how = str(place / "bert"), Building(str(place / "new"), "dense", device="cpu", batch_size=64)
    before = DenseRetriever.assemble(BiEncoderModel.load(model, device="cpu"), Corpus.read(place / "data"))

    def dying(*rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DenseRetriever, "_put", dying)  # when all passages are embedded
        with pytest.raises(KeyboardInterrupt):
            build(model, str(place / "data"), how)
    edit(place / "bert" / "config.json", layer_norm_eps=0.1)
    build(model, str(place / "data"), how)
    made = open_kind(DenseRetriever, place / "new", Opening("cpu"))
    assert "are of other work, and are dropped" in caplog.text
    assert not np.allclose(made.rows, before.rows, atol=1e-4)
    expected = DenseRetriever.assemble(made.encoder, made.corpus, batch_size=64)
    assert np.array_equal(made.rows, expected.rows)
