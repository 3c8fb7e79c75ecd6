"""A random causal language model on disk, as one comes from elsewhere: without our markers."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grls.models.load.build import train_tokenizer


def write_llama(folder: Path, data: Path, positions: int = 256, layers: int = 2) -> Path:
    """A random Llama that lacks our markers, with a tokenizer for the small data set."""
    tokenizer = train_tokenizer(data, 120)
    tokenizer.pad_token = None
    known = len(tokenizer)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=known, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=positions,
        initializer_range=0.3, eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
