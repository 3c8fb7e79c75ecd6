"""Random causal language models on disk, as they come from elsewhere: without our markers."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from grls.models.load.build import train_tokenizer

TINY = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "bos_token_id": None,
}  # fmt: skip
"""Options of a Llama that is smaller still."""


def save_llama(
    folder: Path, tokenizer: PreTrainedTokenizerBase, positions: int = 256, seed: int = 0, **more: Any
) -> Path:
    """A random Llama with a tokenizer."""
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": positions,
    }  # fmt: skip
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), **{**sizes, **ids, **more})
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_llama(folder: Path, data: Path, positions: int = 256, layers: int = 2) -> Path:
    """Its tokenizer, for the small data set, has no padding."""
    tokenizer = train_tokenizer(data, 120)
    tokenizer.pad_token = None
    more = {"num_hidden_layers": layers, "initializer_range": 0.3, "tie_word_embeddings": True}
    return save_llama(folder, tokenizer, positions, **more)


def write_untrained(folder: Path, data: Path, form: str, positions: int = 256) -> Path:
    """Its tokenizer has no padding, and can write a form."""
    tokenizer = train_tokenizer(data, 120, [form])
    tokenizer.pad_token = None
    return save_llama(folder, tokenizer, positions, bos_token_id=None)


def writing_model(data: Path, folder: Path, positions: int, seed: int = 0) -> Path:
    """Its tokenizer can write the prompts of texts."""
    prompts = ["passage: query: \n", "Passage: Propositions: - . 0 9"]
    tokenizer = train_tokenizer(data, 120, prompts)
    return save_llama(folder, tokenizer, positions, seed, **TINY, initializer_range=0.5)
