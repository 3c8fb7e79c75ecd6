"""What a model computes by beside its weights: noticed where it changed, refused where it cannot be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import raises
from small_data import scratch

from grls.answer.writer import TextWriter
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.models.load.language import load_language_model
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import write_spec

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


PROMPTS = {"prompts": {"query": "x", "document": ""}}
CHANGES = [
    ("generative", "config.json", {"layer_norm_epsilon": 0.1}, "layer_norm_epsilon is 0.1, and was 1e-06"),
    ("generative", "config.json", {"layer_norm_epsilon": ...}, "layer_norm_epsilon is not there, and was"),
    ("generative", "generation_config.json", {"decoder_start_token_id": 7}, "decoder_start_token_id is 7"),
    ("dense", "config.json", {"layer_norm_eps": 0.1}, "layer_norm_eps is 0.1, and was 1e-12"),
    ("dense", "1_Pooling/config.json", {"pooling_mode": "cls"}, 'pooling_mode is "cls", and was "mean"'),
    ("dense", "tokenizer_config.json", {"do_lower_case": False}, "do_lower_case is false, and was true"),
    ("dense", "sentence_bert_config.json", {"module_output_name": "x"}, 'module_output_name is "x"'),
    ("dense", "config_sentence_transformers.json", PROMPTS, 'prompts.query is "x"'),
    ("generative", "tokenizer_config.json", {"unk_token": ...}, 'unk_token is not there, and was "<unk>"'),
    ("st5", "config.json", {"relative_attention_max_distance": 2}, "relative_attention_max_distance is 2"),
]


@pytest.mark.parametrize(("kind", "name", "values", "message"), CHANGES)
def test_a_changed_setting_is_refused_by_file_and_field(
    place: Path, kind: str, name: str, values: dict[str, Any], message: str
) -> None:
    edit(place / kind / "model" / name, **values)
    for verify in (None, False):
        with pytest.raises(MismatchError, match=rf"{kind}/model/{name}: {message}.*`grls index`"):
            load_retriever(place / kind, Opening(device="cpu", verify=verify))
    if kind != "st5":  # which is no member
        raises(MismatchError, f"{kind}/model/{name}: {message}", load_retriever, place / "fusion", CPU)


def test_what_changes_no_result_is_let_pass(place: Path) -> None:
    harmless = {
        "transformers_version": "9.0", "dtype": "bfloat16", "torch_dtype": "bfloat16", "_name_or_path": "x",
        "architectures": ["T5Model"], "id2label": {"0": "a"},
    }  # fmt: skip
    for kind in ("generative", "dense", "st5"):
        before = load_retriever(place / kind, CPU).retrieve(QUERIES, 5)
        edit(place / kind / "model" / "config.json", **harmless)
        if kind != "dense":
            edit(place / kind / "model" / "generation_config.json", max_length=3, transformers_version="9")
        tokenizer = place / kind / "model" / "tokenizer_config.json"
        edit(tokenizer, transformers_version="9.0", name_or_path="x", model_max_length=10**9)
        for verify in (None, False):
            opened = load_retriever(place / kind, Opening(device="cpu", verify=verify))
            assert opened.retrieve(QUERIES, 5) == before


def test_damaged_settings_of_a_manifest_or_a_model_are_named(place: Path) -> None:
    file = place / "dense" / "model" / "config.json"
    file.write_text("[]")
    raises(DataError, r"model/config.json: expected an object", load_retriever, place / "dense", CPU)
    edit(place / "dense" / "grls.json", settings={"config.json": []})
    with pytest.raises(DataError, match=r"grls.json: settings: expected the settings of the model"):
        load_retriever(place / "dense", CPU)


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
    made = DenseRetriever.from_pretrained(place / "new", "cpu")
    assert "are of other work, and are dropped" in caplog.text
    assert not np.allclose(made.rows, before.rows, atol=1e-4)
    expected = DenseRetriever.assemble(made.encoder, made.corpus, batch_size=64)
    assert np.array_equal(made.rows, expected.rows)
