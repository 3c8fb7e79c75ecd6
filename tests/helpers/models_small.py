"""Small random models for tests; no weights are loaded."""

import numpy as np
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from grls.index.base import ConstraintIndex

VOCABULARY = 50
PAD, END = 0, 1


def small_t5(seed: int = 0, scale: float = 1.0, tie: bool = True) -> T5ForConditionalGeneration:
    """A random T5; ``scale`` sharpens its distribution."""
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=END, tie_word_embeddings=tie,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(scale)
    return model


def small_bart(seed: int = 0) -> BartForConditionalGeneration:
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, pad_token_id=PAD, bos_token_id=2,
        eos_token_id=END, decoder_start_token_id=END, forced_eos_token_id=None, init_std=0.3,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    model.final_logits_bias.normal_()
    return model


def small_bert2bert(seed: int = 0) -> EncoderDecoderModel:
    torch.manual_seed(seed)
    one = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, initializer_range=0.3, pad_token_id=PAD,
    )  # fmt: skip
    config = EncoderDecoderConfig.from_encoder_decoder_configs(one, one)
    model = EncoderDecoderModel(config=config).eval()
    for c in (model.config, model.generation_config):
        c.decoder_start_token_id, c.pad_token_id, c.eos_token_id = 2, PAD, END
    return model


def small_llama(seed: int = 0, scale: float = 2.0) -> LlamaForCausalLM:
    """A random Llama with two query heads a head of keys."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3,
        bos_token_id=2, eos_token_id=END, pad_token_id=PAD, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(scale)
    return model


def small_gpt2(seed: int = 0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3,
        bos_token_id=2, eos_token_id=END, pad_token_id=PAD,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def log_probability(model: torch.nn.Module, index: ConstraintIndex, source: list[int], passage: int) -> float:
    """The definition: the renormalized log-probability of a passage, token by token."""
    tokens, total = index.tokens(passage), 0.0
    state = np.array([index.start()])
    for place, token in enumerate(tokens):
        allowed = index.allowed(state)
        with torch.no_grad():
            ids = torch.tensor([[*source, *tokens[:place].tolist()]])
            logits = model(input_ids=ids).logits[0, -1][torch.from_numpy(allowed.tokens.astype(np.int64))]
        at = int(np.searchsorted(allowed.tokens, token))
        total += float(logits.log_softmax(-1)[at])
        state = allowed.states[[at]]
    return total
