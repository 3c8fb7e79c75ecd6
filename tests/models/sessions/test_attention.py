"""Which attention a model computes with, and that it is as it was afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models_small import small_llama, small_t5

from grls.models.sessions.memory import SHORT, configs_of, plain_attention


@pytest.mark.parametrize("make", [small_llama, small_t5])
@pytest.mark.filterwarnings("error")
def test_on_a_cpu_attention_is_plain_within_the_block_only(make: Callable[[], Any]) -> None:
    model = make()

    def kinds() -> set[str]:
        return {config._attn_implementation for config in configs_of(model)}

    def fail_within() -> None:
        with plain_attention(model, SHORT):
            assert kinds() == {"eager"}
            raise KeyError

    before = kinds()
    with pytest.raises(KeyError):
        fail_within()
    assert kinds() == before != {"eager"}
    with plain_attention(model, SHORT + 1):  # where it would keep too much
        assert kinds() == before


def test_what_is_computed_is_the_same() -> None:
    model, tokens = small_llama().eval(), torch.tensor([[3, 4, 5, 6]])
    assert model.config._attn_implementation == "sdpa"
    fused = model(input_ids=tokens).logits
    with plain_attention(model, 4):
        assert model(input_ids=tokens).logits.allclose(fused, atol=1e-5)
