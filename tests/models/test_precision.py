"""Precisions: what is packed, what stays, and what is refused."""

import pytest
import torch
from models_small import small_t5

from grls.errors import ConfigError
from grls.models import precision
from grls.models.precision import fastest, move, packed, packs

INPUT = {"input_ids": torch.tensor([[3, 4, 5, 1]]), "decoder_input_ids": torch.tensor([[0, 7, 9]])}


@pytest.mark.parametrize(("name", "near"), [("float32", 0.0), ("float16-weights", 1e-2), ("int8", 0.3)])
def test_logits_stay_near_those_of_float32(name: str, near: float) -> None:
    if name != "float32" and not packs(name):
        pytest.skip(f"this build of PyTorch does not pack {name}")
    with torch.inference_mode():
        expected = small_t5()(**INPUT).logits
        found = move(small_t5(), "cpu", name)(**INPUT).logits
    off = float((found - expected).std() / expected.std())
    assert off <= near
    assert (off > 0) == (name != "float32")


def test_the_head_is_never_packed() -> None:
    if not packs("int8"):
        pytest.skip("this build of PyTorch does not pack int8")
    model = move(small_t5(), "cpu", "int8")
    assert type(model.get_output_embeddings()) is torch.nn.Linear
    left = [name for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    assert left == ["lm_head"]
    assert packed(model)
    assert not packed(small_t5())


def test_bfloat16_is_the_models_own() -> None:
    assert move(small_t5(), "cpu", "bfloat16").dtype == torch.bfloat16


def test_auto_takes_what_was_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(precision, "_seconds", lambda *_: next(told))
    assert fastest(torch.device("cpu")) == "bfloat16"
    told = iter([1.0, 3.0, 2.0])
    assert fastest(torch.device("cpu")) == "float32"


@pytest.mark.parametrize(
    ("device", "name", "message"),
    [
        ("cpu", "half", "unknown precision 'half'; expected one of float32"),
        ("meta", "int8", "is for CPUs"),
        ("nowhere", "float32", "cannot use device 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(device: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        move(small_t5(), device, name)
