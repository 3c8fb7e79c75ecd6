"""A small random language model in a folder, with a tokenizer that can write the prompts of texts."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grls.models.load.build import train_tokenizer

_PROMPTS = ["passage: query: \n", "Passage: Propositions: - . 0 9"]


def writing_model(data: Path, folder: Path, positions: int, seed: int = 0) -> Path:
    """Write the model over the words of a data set; returns its folder."""
    tokenizer = train_tokenizer(data, 120, _PROMPTS)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=positions, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, initializer_range=0.5,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
