"""Writes the weights of networks, without the progress bars of the libraries.

A bar for the files of one model is no news beside the output of a command or a notebook, and appeared in some
commands and not in others. Errors are raised as they are. The module does not know the purpose of a model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.io.logs import without_weight_bars


def write_network(network: Any, folder: str | Path) -> None:
    """Write config and weights of a model of transformers to a folder.

    Args:
        network: The model.
        folder: The folder; it is made if it is missing.
    """
    with without_weight_bars():
        network.save_pretrained(folder)


def write_encoder(model: Any, folder: str | Path) -> None:
    """Write a model of sentence-transformers, with its tokenizer, to a folder.

    Args:
        model: The model.
        folder: The folder; it is made if it is missing.
    """
    with without_weight_bars():
        model.save(str(folder), create_model_card=False)
