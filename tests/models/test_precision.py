"""Precisions; the attention and four bits of large models; what is refused."""

from pathlib import Path

import pytest
import torch
from failing import raises
from fixture_types import Patch
from llama_small import write_llama
from models_small import small_t5
from small_data import write_small

from grls.errors import ConfigError
from grls.models.load.generators import CausalLM, Pretrained
from grls.models.precision import has_bfloat16, move
from grls.train.core.trainer import Trainer


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16"])
def test_auto_takes_bfloat16_where_the_processor_has_it(name: str, monkeypatch: Patch) -> None:
    for able, taken in (
        ({name: True}, "bf16-mixed"),
        ({name: False, "avx2": True}, "32-true"),
        ({}, "32-true"),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda able=able: able, raising=False)
        assert has_bfloat16(torch.device("cpu")) == (taken == "bf16-mixed")
        trainer = Trainer(precision="auto", accelerator="cpu", logger=False, enable_checkpointing=False)
        assert trainer.precision == taken
        number = torch.bfloat16 if taken == "bf16-mixed" else torch.float32
        assert move(small_t5(), "cpu", "auto").dtype == number
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # as in an older PyTorch
    assert not has_bfloat16(torch.device("cpu"))


@pytest.mark.parametrize(
    ("able", "told"),
    [({"avx512_bf16": False}, True), ({"avx512_bf16": True}, False), ({"bf16": True}, False)],
)
def test_bfloat16_that_is_emulated_is_told_where_it_was_asked_for(
    able: dict[str, bool], told: bool, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)

    def said() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [text for text in found if "no bfloat16 instructions" in text]

    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    Trainer(precision="bf16-mixed", **quiet)
    assert ['"32-true" or "auto"' in text for text in said()] == [True] * told
    move(small_t5(), "cpu", "bfloat16")
    assert ["precision float32" in text for text in said()] == [True] * told
    Trainer(precision="auto", **quiet)
    move(small_t5(), "cpu", "auto")
    assert not said()


def test_a_device_that_is_not_there_is_refused() -> None:
    raises(ConfigError, "cannot use device 'nowhere'", move, small_t5(), "nowhere", "float32")


on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="what is refused without a GPU")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("large")
    return str(write_llama(folder / "llama", write_small(folder / "data")))


@pytest.mark.parametrize("kind", [Pretrained, CausalLM])
def test_attention_is_chosen(kind: type[Pretrained | CausalLM], llama: str) -> None:
    for name in ("eager", "sdpa"):
        assert kind(llama, attention=name).load().model.config._attn_implementation == name  # type: ignore[arg-type]


@on_cpu
@pytest.mark.parametrize("kind", [Pretrained, CausalLM])
def test_what_needs_a_gpu_is_refused(kind: type[Pretrained | CausalLM], llama: str) -> None:
    raises(ConfigError, r"four_bit \(QLoRA\) needs a CUDA GPU", kind(llama, four_bit=True).load)
    with pytest.raises(ConfigError, match="flash_attention_2 needs a CUDA GPU, and there is none: take sdpa"):
        kind(llama, attention="flash_attention_2").load()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="weights of four bits need a CUDA GPU")
def test_four_bits_are_trained_by_adapters(llama: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="the extra qlora is not installed")
    from train_helpers import chain_options

    from grls.cli import main

    root = Path(llama).parent
    more = ["--model.generator.four_bit=true", "--model.lora_rank=2", "--trainer.accelerator=gpu"]
    assert main(chain_options(root, tmp_path, *more, "--trainer.devices=1")) == 0
    saved = CausalLM(str(tmp_path / "model")).load().model
    assert getattr(saved.config, "quantization_config", None) is None
    before = CausalLM(llama).load().model.state_dict()
    assert any(not torch.equal(weight, before[name]) for name, weight in saved.state_dict().items())
