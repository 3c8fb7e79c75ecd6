"""How a large model is loaded for training: its attention, four bits, and what is refused."""

from pathlib import Path

import pytest
import torch
from llama_small import write_llama
from small_data import write_small

from grls.errors import ConfigError
from grls.models.load.build import Pretrained
from grls.models.load.language import CausalLM

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
    with pytest.raises(ConfigError, match=r"four_bit \(QLoRA\) needs a CUDA GPU"):
        kind(llama, four_bit=True).load()
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
