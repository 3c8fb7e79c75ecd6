"""Which models the fast search may drive, in every precision, and with which attention."""

from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pytest
import torch
from failing import raises
from models_small import PAD, VOCABULARY, small_bert2bert, small_gpt2, small_llama, small_t5
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BloomConfig,
    BloomForCausalLM,
    MarianConfig,
    MarianMTModel,
)

from grls.errors import ConfigError
from grls.models.load.kinds import plain_generator, slot_model
from grls.models.seq2seq import slots
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant
from grls.models.sessions.memory import SHORT, configs_of, plain_attention

PRECISIONS = [torch.float32, torch.bfloat16, torch.float16]


def seq2seq_shape(spread: float) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32, "pad_token_id": PAD, "eos_token_id": 1, "forced_eos_token_id": None,
        "decoder_start_token_id": 1, "init_std": spread, "max_position_embeddings": 64,
    }  # fmt: skip


def bart(spread: float) -> Any:
    return BartForConditionalGeneration(BartConfig(**seq2seq_shape(spread)))


def marian(spread: float) -> Any:
    return MarianMTModel(MarianConfig(**seq2seq_shape(spread)))


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("make", [bart, marian])
def test_a_decoder_that_counts_its_tokens_is_never_driven_by_slots(
    make: Callable[[float], Any], kind: torch.dtype
) -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        model = make((0.02, 0.1, 0.3)[seed % 3]).eval().to(kind)
        raises(ConfigError, "computes something else", plant, Seq2SeqGenerator(model))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_biases_by_distance_that_no_position_changes_are_refused_alike(kind: torch.dtype) -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        config = BloomConfig(
            vocab_size=VOCABULARY, hidden_size=32, n_layer=1, n_head=4, initializer_range=0.1
        )
        model = BloomForCausalLM(config).eval().to(kind)
        assert slot_model(plain_generator(model)) is None, seed


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("make", [small_t5, small_bert2bert, small_gpt2, small_llama])
def test_models_that_take_their_positions_are_driven_in_every_precision(
    make: Callable[[], Any], kind: torch.dtype
) -> None:
    assert slot_model(plain_generator(make().to(kind))) is not None


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


def test_inputs_go_into_slots_a_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of all layers would take the memory of the inputs once more."""
    made: list[ReferenceType[torch.Tensor]] = []
    alive: list[int] = []
    by_entry = slots.by_entry

    def watched(layer: Any) -> Any:
        alive.append(sum(each() is not None for each in made))
        pair = by_entry(layer)
        made.append(ref(pair.keys))
        return pair

    trees = plant(Seq2SeqGenerator(small_t5(0)))
    monkeypatch.setattr(slots, "by_entry", watched)
    trees.open_trees(2, 3).load(np.arange(2), [[3, 4, 5], [5, 4]])
    assert len(alive) > 2
    assert max(alive) <= 1
