"""Logits from what reaches a head: the model's own, whatever the model does with what the head gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from failing import raises
from models_small import small_bart, small_bert2bert, small_gpt2, small_llama, small_t5
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
)

from grls.answer.ralm.reader import TextScorer, Wanted
from grls.errors import ConfigError
from grls.models.causal.slots import CausalGenerator, plant_causal
from grls.models.head import Head
from grls.models.seq2seq.slots import Seq2SeqGenerator

SHAPE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 1,
}  # fmt: skip


def gemma2(cap: float | None, spread: float = 0.5) -> Any:
    config = Gemma2Config(
        **SHAPE, head_dim=8, final_logit_softcapping=cap, initializer_range=spread,
        layer_types=["full_attention"],
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


CHANGED: dict[str, Callable[[], Any]] = {
    "gemma2": lambda: gemma2(5.0),
    # Logits of 0.01, which a cap of 30 changes by less than a float32 can hold.
    "gemma2, logits too small to show it": lambda: gemma2(30.0, 0.0005),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SHAPE, head_dim=8, final_logit_softcapping=30.0, layer_types=["full_attention"])
    ),
    "cohere": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.0625)),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=8.0, initializer_range=0.5)),
    "granite, hardly": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=1.01)),
    "granite moe": lambda: GraniteMoeForCausalLM(
        GraniteMoeConfig(**SHAPE, logits_scaling=8.0, num_local_experts=2, num_experts_per_tok=1)
    ),
}
PLAIN: dict[str, Callable[[], Any]] = {
    "llama": small_llama, "gpt2": small_gpt2, "t5, scaled before the head": small_t5,
    "bart, with a bias of its own": small_bart, "bert2bert": small_bert2bert,
    "gemma2 without a cap": lambda: gemma2(None),
    "cohere, by one": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=1.0)),
    "granite, by one": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=1.0)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", [*PLAIN, *CHANGED])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_logits_are_the_models_own(name: str, kind: torch.dtype) -> None:
    model = (PLAIN | CHANGED)[name]().eval().to(kind)
    head = Head(model)
    assert head.linear is (name in PLAIN)
    arguments = {"input_ids": torch.tensor([[7, 8, 9, 10]])}
    if model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = torch.tensor([[2, 11, 12]])
    expected, read = model(**arguments).logits[0].float(), head.read(**arguments)[0]
    close = {"rtol": 1e-5, "atol": 1e-6} if kind is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    assert torch.allclose(head.all(read), expected, **close)
    tokens, rows = torch.tensor([4, 9, 31]), torch.tensor([0, 2, 1])
    assert torch.allclose(head.some(read, tokens), expected[:, tokens], **close)
    assert torch.allclose(head.cut(tokens)(read), expected[:, tokens], **close)
    assert torch.allclose(head.pairs(read, rows, tokens), expected[rows, tokens], **close)


@pytest.mark.parametrize("name", ["llama", *CHANGED])
def test_perplexity_and_reranking_score_by_the_models_own_logits(name: str) -> None:
    model = (PLAIN | CHANGED)[name]().eval()
    scorer = TextScorer(model, lambda document: [5, 6, 7 + document], batch_tokens=16)
    text = torch.randint(3, 50, (30,)).tolist()
    wanted = [Wanted((0,), 0, 4, 20), Wanted((1,), 2, 4, 20), Wanted((), 8, 12, 30)]
    found = scorer.log_probabilities(text, wanted)
    for one, values in zip(wanted, found, strict=True):
        before = [token for n in one.documents for token in (5, 6, 7 + n)]
        tokens = torch.tensor([before + text[one.start : one.last]])
        with torch.no_grad():
            scores = model(input_ids=tokens).logits[0].double().log_softmax(-1)
        places = np.arange(one.first, one.last) + len(before) - one.start - 1
        expected = scores[places, text[one.first : one.last]].numpy()
        assert values == pytest.approx(expected, abs=1e-4)


def test_searches_step_by_the_models_own_logits_and_trees_refuse_others() -> None:
    for name, make in CHANGED.items():
        model = make().eval()
        assert not CausalGenerator(model).head.linear, name
        raises(ConfigError, "after the head", plant_causal, model)


def test_a_head_that_is_more_than_linear_is_seen() -> None:
    class Doubled(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(hidden)

    class Plain(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden)

    for kind, linear in ((Doubled, False), (Plain, True)):
        model = small_llama()
        made = kind(32, 50, bias=False)
        made.weight = model.lm_head.weight
        model.lm_head = made
        assert Head(model).linear is linear
    hooked = small_llama()
    hooked.lm_head.register_forward_hook(lambda module, given, logits: logits / 2)
    assert not Head(hooked).linear


def test_a_model_that_hides_words_is_seen_and_trying_leaves_its_modes() -> None:
    model = small_t5()
    forward = model.forward

    def masked(**arguments: Any) -> Any:
        output = forward(**arguments)
        output.logits[..., 48:] = -1e4
        return output

    model.forward = masked
    model.train()
    model.encoder.eval()
    head = Seq2SeqGenerator(model).head
    assert not head.linear
    modes = model.training, model.decoder.training, model.encoder.training
    assert modes == (True, True, False)
