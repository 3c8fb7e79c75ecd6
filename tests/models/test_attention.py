"""Which attention a model computes with, and that it is as it was afterwards."""

import pytest
import torch
from models_small import small_llama, small_t5

from grls.models.attention import configs_of, plain_attention


@pytest.mark.parametrize("make", [small_llama, small_t5])
def test_on_a_cpu_attention_is_plain_within_the_block_only(make: object) -> None:
    model = make()  # type: ignore[operator]
    before = [config._attn_implementation for config in configs_of(model)]
    with pytest.raises(KeyError), plain_attention(model):
        assert {config._attn_implementation for config in configs_of(model)} == {"eager"}
        raise KeyError
    assert [config._attn_implementation for config in configs_of(model)] == before


def test_what_is_computed_is_the_same() -> None:
    model, tokens = small_llama().eval(), torch.tensor([[3, 4, 5, 6]])
    assert model.config._attn_implementation == "sdpa"
    fused = model(input_ids=tokens).logits
    with plain_attention(model):
        assert model(input_ids=tokens).logits.allclose(fused, atol=1e-5)
