"""Model folders that lack something, hold too much, or bring code: each is one error that names what."""

import ast
import json
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import raises
from safetensors.torch import load_file, save_file
from small_data import write_small
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    T5Config,
    T5ForConditionalGeneration,
)

from grls.answer.ralm.reranker import Reranker
from grls.data.codec import SPECIAL_TOKENS, limits_of
from grls.errors import ConfigError, DataError, GrlsError
from grls.models.biencoder import BiEncoderModel
from grls.models.entailment import load_entailment
from grls.models.load.build import read_stages, train_tokenizer
from grls.models.load.generators import Pretrained, PretrainedLM, WarmStart
from grls.models.load.language import load_language_model
from grls.models.load.opening import hub_answers, opening_errors

ROOT = Path(__file__).parents[3]
CODE = "raise SystemExit('code of a folder was run')\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole folders: gpt2, t5, llama, bert, mlm (its head is unused), judge, ranker, sentence."""
    home = tmp_path_factory.mktemp("models")
    data = write_small(home / "data") or home / "data"
    tokenizer = train_tokenizer(data, 120)
    tokenizer.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    torch.manual_seed(0)
    words = {"vocab_size": len(tokenizer)}
    bert = BertConfig(
        **words, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    judge = BertConfig(**{**bert.to_dict(), "id2label": {0: "entailment", 1: "neutral"}})
    ranker = BertConfig(**{**bert.to_dict(), "num_labels": 1})
    causal = LlamaConfig(
        **words, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        tie_word_embeddings=False, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    made = {
        "gpt2": GPT2LMHeadModel(GPT2Config(**words, n_embd=16, n_layer=2, n_head=2)),
        "t5": T5ForConditionalGeneration(
            T5Config(
                **words, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
            )
        ),
        "llama": LlamaForCausalLM(causal),
        "headless": LlamaModel(causal),
        "bert": BertModel(bert),
        "mlm": BertForMaskedLM(bert),
        "judge": BertForSequenceClassification(judge),
        "ranker": BertForSequenceClassification(ranker),
    }
    for name, model in made.items():
        model.save_pretrained(home / name)
        tokenizer.save_pretrained(home / name)
    BiEncoderModel.load(str(home / "bert"), device="cpu").save(home / "sentence")
    BiEncoderModel.load(str(home / "t5"), device="cpu").save(home / "st5")
    return home


LOADERS: dict[str, Callable[[str], Any]] = {
    "generator": lambda folder: Pretrained(folder).load(),
    "language": lambda folder: load_language_model(folder, "cpu"),
    "tuned": lambda folder: PretrainedLM(folder).load(),
    "dense": lambda folder: BiEncoderModel.load(folder, device="cpu"),
    "judge": lambda folder: load_entailment(folder, "cpu"),
    "ranker": lambda folder: Reranker.load(folder, device="cpu", trained=True),
    "encoder": lambda folder: Reranker.load(folder, device="cpu"),
    "warm": lambda folder: WarmStart(folder, 1).load(),
}
WHOLE = [
    ("generator", "gpt2"), ("generator", "t5"), ("generator", "llama"), ("language", "llama"),
    ("tuned", "gpt2"), ("dense", "bert"), ("dense", "mlm"), ("dense", "sentence"), ("dense", "t5"),
    ("dense", "st5"), ("encoder", "mlm"), ("judge", "judge"), ("encoder", "bert"), ("ranker", "ranker"),
    ("warm", "mlm"), ("warm", "bert"),
]  # fmt: skip


def broken(models: Path, name: str, to: Path, damage: Callable[[Path], Any]) -> str:
    shutil.copytree(models / name, to)
    damage(to)
    return str(to)


def drop(*begins: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "model.safetensors"
        kept = {k: v.clone() for k, v in load_file(file).items() if not k.startswith(begins)}
        save_file(kept, file, metadata={"format": "pt"})

    return damage


def change(file: str, **values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**found, **values}))

    return damage


def remove(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def write(name: str, text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(text)


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def coded(folder: Path) -> None:
    change("config.json", auto_map={"AutoModel": "own.Model", "AutoConfig": "own.Config"})(folder)
    (folder / "own.py").write_text(CODE)


def test_a_tokenizer_without_its_unknown_token_is_refused(models: Path, tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"otter": 0, "lynx": 1}, "unk_token": "<unk>"}
    words = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None, "decoder": None, "truncation": None, "padding": None, "model": model,
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    folder = Path(shutil.copytree(models / "bert", tmp_path / "m"))
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"cannot load .*unknown token is missing"):
        LOADERS["dense"](str(folder))


@pytest.mark.parametrize(("loader", "name"), WHOLE)
def test_whole_folders_open_and_unused_heads_are_no_fault(models: Path, loader: str, name: str) -> None:
    assert LOADERS[loader](str(models / name)) is not None


@pytest.mark.parametrize(("loader", "name", "damage", "named"), [
    ("generator", "headless", lambda folder: None, r"lm_head\.weight"),
    ("language", "headless", lambda folder: None, r"lm_head\.weight"),
    ("generator", "t5", drop("encoder.block.1"), r"encoder\.block\.1\..* and 5 more"),
    ("generator", "gpt2", drop("transformer.h.1.mlp"), r"transformer\.h\.1\.mlp"),
    ("generator", "gpt2", change("config.json", n_layer=1), r"holds transformer\.h\.1\..* and 8 more"),
    ("generator", "gpt2", change("config.json", n_embd=8), r"cannot load a generator"),
    ("dense", "bert", drop("encoder.layer.0"), r"encoder\.layer\.0"),
    ("dense", "mlm", change("config.json", num_hidden_layers=1), r"bert\.encoder\.layer\.1"),
    ("dense", "sentence", drop("encoder.layer.1.output"), r"encoder\.layer\.1\.output"),
    ("dense", "st5", drop("decoder.final"), r"decoder\.final_layer_norm\.weight"),
    ("warm", "bert", drop("embeddings.word"), r"embeddings\.word_embeddings\.weight"),
    ("judge", "judge", drop("classifier"), r"classifier\.bias, classifier\.weight"),
    ("judge", "judge", drop("bert.pooler"), r"bert\.pooler"),
    ("ranker", "bert", lambda folder: None, r"classifier\.bias"),
    ("ranker", "ranker", drop("classifier.bias"), r"classifier\.bias"),
    ("encoder", "bert", drop("encoder.layer.0"), r"encoder\.layer\.0"),
])  # fmt: skip
def test_weights_that_are_missing_or_have_no_place_are_named(
    models: Path, tmp_path: Path, loader: str, name: str, damage: Callable[[Path], Any], named: str
) -> None:
    folder = broken(models, name, tmp_path / "m", damage)
    with pytest.raises(ConfigError, match=named) as caught:
        LOADERS[loader](folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("loader", "name"), WHOLE[1::2])
@pytest.mark.parametrize(("damage", "named"), [
    (remove("tokenizer.json"), "tokenizer"),
    (remove("tokenizer_config.json"), r"tokenizer_config\.json"),
    (write("tokenizer.json", "{"), r"tokenizer\.json"),
    (write("tokenizer.json", "{}"), r"tokenizer\.json"),
    (write("tokenizer.json", '{"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}}'), ""),
    (remove("model.safetensors"), "no weights"),
    (write("model.safetensors", "x"), ""),
    (pickled, r"pytorch_model\.bin, a pickle"),
    (coded, "its own code"),
    (change("tokenizer_config.json", auto_map={"AutoTokenizer": ["own.T", None]}), "its own code"),
    (write("config.json", "{"), r"config\.json"),
    (write("config.json", "[]"), ""),
    (change("config.json", vocab_size=None), ""),
    (change("config.json", layer_norm_eps=[], layer_norm_epsilon=[], rms_norm_eps=[]), ""),
])  # fmt: skip
def test_damaged_folders_are_one_error_for_every_loader(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: str,
    name: str,
    damage: Callable[[Path], Any],
    named: str,
) -> None:
    monkeypatch.setattr("builtins.input", lambda *asked: pytest.fail("asked on standard input"))
    folder = broken(models, name, tmp_path / "m", damage)
    with pytest.raises(GrlsError, match=named) as caught:
        LOADERS[loader](folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


FETCHING: list[dict[str, Any]] = [
    {"attn_implementation": "evil/kernel"}, {"_attn_implementation": "kernels-community/x@abc:function"},
    {"attn_implementation": {"": "eager", "encoder": {"text_config": "paged|evil/kernel"}}},
    {"attn_implementation": "flash_attention_2"}, {"experts_implementation": "sonicmoe"},
    {"decoder": {"text_config": [{"_attn_implementation": "evil/kernel"}]}},
    {"attribute_map": {"shape": "_attn_implementation"}, "shape": "evil/kernel"},
    {"quantization_config": {"quant_method": "mxfp4"}}, {"use_kernels": True}, {"backbone": "evil/model"},
    {"encoder": {"auto_map": {"AutoModel": "evil/code--own.Model"}}},
]  # fmt: skip
"""Settings for which transformers fetches code, or another model."""


@pytest.mark.parametrize(
    ("loader", "name"),
    [("generator", "llama"), ("generator", "t5"), ("language", "gpt2"), ("dense", "sentence"),
     ("dense", "st5"), ("dense", "bert"), ("judge", "judge"), ("ranker", "ranker")],
)  # fmt: skip
def test_settings_that_fetch_code_are_refused_before_a_library_reads_them(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: str, name: str
) -> None:
    reached: list[str] = []

    def get_kernel(name: str, **options: Any) -> Any:
        reached.append(name)
        return type("Kernel", (), {"flash_attn_varlen_func": print, "flash_attn_func": print})

    for module in ("modeling_utils", "integrations.hub_kernels"):
        monkeypatch.setattr(f"transformers.{module}.is_kernels_available", lambda: True)
    monkeypatch.setattr("transformers.integrations.hub_kernels.get_kernel", get_kernel)
    settings = [("config.json", values) for values in FETCHING]
    settings += [("processor_config.json", {"audio_tokenizer": {"audio_tokenizer_name_or_path": "evil/x"}})]
    if name == "sentence":
        kernel, loading = (
            {"attn_implementation": "evil/kernel"},
            {"use_safetensors": False, "device_map": "disk"},
        )
        settings += [
            ("sentence_bert_config.json", {"config_kwargs": kernel}),
            ("sentence_roberta_config.json", {"model_args": kernel}),
            ("sentence_bert_config.json", {"model_kwargs": loading}),
            ("sentence_bert_config.json", {"transformer_task": "retrieval"}),
            ("inner/config.json", kernel),
        ]
    for n, (file, values) in enumerate(settings):
        folder = broken(models, name, tmp_path / str(n), lambda folder: (folder / "inner").mkdir())
        place = Path(folder) / file
        place.write_text(json.dumps({**(json.loads(place.read_text()) if place.is_file() else {}), **values}))
        said = rf"from '{folder}': .*in its {re.escape(file)}"
        raises(ConfigError, said, LOADERS[loader], folder)
    assert not reached
    change("config.json", attn_implementation="eager")(
        Path(folder := str(shutil.copytree(models / name, tmp_path / "m")))
    )
    assert LOADERS[loader](folder) is not None
    (tmp_path / "m" / "link").symlink_to("/")
    raises(ConfigError, "m/link is a link to a folder: put the folder there", LOADERS[loader], folder)


@pytest.mark.parametrize(("loader", "name"), WHOLE[1::2])
def test_a_tokenizer_with_more_pieces_than_the_model_has_rows_is_refused(
    models: Path, tmp_path: Path, loader: str, name: str
) -> None:
    """The other rows would be random numbers, or an IndexError; our own markers are rows that we add."""

    def enlarge(*pieces: str) -> Callable[[Path], None]:
        def damage(folder: Path) -> None:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            tokenizer.add_tokens([*pieces])
            tokenizer.save_pretrained(folder)

        return damage

    rows = len(AutoTokenizer.from_pretrained(models / name))
    if name == "st5":
        rows = AutoModelForSeq2SeqLM.from_pretrained(models / name).get_input_embeddings().num_embeddings
    larger = enlarge(*(f"piece{n}" for n in range(900)))
    folder = broken(models, name, tmp_path / "larger", larger)
    pieces = len(AutoTokenizer.from_pretrained(folder))
    sizes = rf"the tokenizer has {pieces:,} pieces, but the model has rows for {rows:,}, .*copy the tokenizer"
    with pytest.raises(ConfigError, match=sizes) as caught:
        LOADERS[loader](folder)
    assert str(folder) in str(caught.value)
    marked = broken(models, name, tmp_path / "marked", enlarge(*SPECIAL_TOKENS))
    assert LOADERS[loader](marked) is not None


@pytest.mark.parametrize(("damage", "named"), [
    (lambda folder: shutil.rmtree(folder / "1_Pooling"), "settings of Pooling"),
    (remove("modules.json"), r"lacks modules\.json"),
    (write("modules.json", "[3]"), r"modules\.json"),
    (write("modules.json", "[]"), r"modules\.json"),
    (write("modules.json", "{"), r"modules\.json"),
])  # fmt: skip
def test_a_sentence_folder_without_a_part_is_refused(
    models: Path, tmp_path: Path, damage: Callable[[Path], Any], named: str
) -> None:
    folder = broken(models, "sentence", tmp_path / "m", damage)
    raises(GrlsError, named, BiEncoderModel.load, folder, device="cpu")


def test_a_shard_that_is_missing_is_refused(models: Path, tmp_path: Path) -> None:
    model, tokenizer = Pretrained(str(models / "gpt2")).load()
    model.save_pretrained(tmp_path / "m", max_shard_size="4KB")
    tokenizer.save_pretrained(tmp_path / "m")
    assert Pretrained(str(tmp_path / "m")).load()
    shard = sorted((tmp_path / "m").glob("model-*.safetensors"))[1]
    shard.unlink()
    raises(ConfigError, shard.name, Pretrained(str(tmp_path / "m")).load)


@pytest.mark.parametrize("loader", ["generator", "language", "tuned"])
def test_an_encoder_writes_nothing(models: Path, loader: str) -> None:
    """transformers opens one as a causal model, which sees later tokens."""
    raises(ConfigError, "a bert is an encoder, which writes nothing", LOADERS[loader], str(models / "mlm"))


@pytest.mark.parametrize("text", ["{", "[]", "5", '{"stages": 5}', '{"stages": [5]}', "{}"])
def test_a_damaged_training_file_is_named(models: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    raises(DataError, r"training\.json", read_stages, tmp_path)
    folder = broken(models, "sentence", tmp_path / "m", write("training.json", text))
    raises(DataError, r"training\.json", BiEncoderModel.load, folder, device="cpu")


@pytest.mark.parametrize("limits", [{"passage": "5"}, {"passage": True}, [1, 2, 3], None, {"other": 3}, "x"])
def test_limits_that_are_no_numbers_are_named(tmp_path: Path, limits: Any) -> None:
    with pytest.raises(DataError, match=r"grls\.json: expected the limits passage, query, input"):
        limits_of(limits, tmp_path / "grls.json", "make it again")


def test_a_panic_is_an_error_of_ours_and_an_interrupt_is_not() -> None:
    panic = type("PanicException", (BaseException,), {})
    with (
        pytest.raises(ConfigError, match="cannot load a model from 'm': it broke"),
        opening_errors("a model", "m", "."),
    ):
        raise panic("it broke")
    with pytest.raises(KeyboardInterrupt), opening_errors("a model", "m", "."):
        raise KeyboardInterrupt


def test_nowhere_may_a_folder_bring_code() -> None:
    """Every call that opens a part of a model by its folder says that no code of the folder is run."""
    asked = 0
    for file in (f for part in ("grls", "data_prep", "benchmarks") for f in (ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            theirs = called.endswith(".from_pretrained") and not called.startswith(
                ("GenerativeRetriever", "DenseRetriever", "cls")  # our own
            )
            by_folder = called in ("SentenceTransformer", "CrossEncoder", "pipeline") and bool(node.args)
            if theirs or by_folder:
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert words.get("trust_remote_code") == "False", f"{file.name}, line {node.lineno}"
                asked += 1
    assert asked >= 5


@pytest.mark.parametrize(
    "name", ["grls.models.load.opening.open_config", "grls.models.load.opening.open_tokenizer"]
)
def test_a_name_on_a_hub_that_does_not_answer_is_refused_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client of the hub would try five times for each file, which takes half a minute."""
    asked: list[dict[str, Any]] = []

    def from_pretrained(source: str, **options: Any) -> None:
        asked.append(options)
        raise OSError(f"no {source}")

    def cached_file(source: str, name: str, **options: Any) -> None:  # the real one would ask a hub
        read.add(options.get("local_files_only", False))

    read: set[bool] = set()
    monkeypatch.setattr("transformers.utils.hub.cached_file", cached_file)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", from_pretrained)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", from_pretrained)
    module, _, function = name.rpartition(".")
    for answers in (True, False):
        read.clear()
        monkeypatch.setattr("grls.models.load.opening.hub_answers", lambda answers=answers: answers)
        with (
            pytest.raises(ConfigError, match="Give a folder"),
            opening_errors("a model", "a/b", "Give a folder."),
        ):
            getattr(import_module(module), function)("a/b")
        assert read == {not answers}
    assert [one.get("local_files_only", False) for one in asked] == [False, True]


def test_a_hub_that_nobody_serves_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert not hub_answers.__wrapped__()
