"""A tiny encoder whose losses are the same on any number of processes."""

import json
from pathlib import Path

import torch
from small_data import tiny_bert


def still_bert(folder: Path) -> Path:
    """A random encoder without dropout."""
    torch.manual_seed(0)
    config = tiny_bert(folder) / "config.json"
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps({**json.loads(config.read_text()), **still}))
    return folder
