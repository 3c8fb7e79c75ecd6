"""Which of transformers' implementations of attention a model computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def attending(configs: list[Any], name: str) -> Iterator[None]:
    """Within the block these configs name another implementation of attention.

    Args:
        configs: Those of all parts of a model (:func:`configs_of`).
        name: As transformers knows it.
    """
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = name
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own


def configs_of(module: nn.Module) -> list[Any]:
    """The configs of a model and its parts, each once."""
    found: list[Any] = [part.config for part in module.modules() if hasattr(part, "config")]
    return list({id(config): config for config in found}.values())


SHORT = 256
"""Longest inputs (tokens) that plain products suit: they keep a number a head for each pair of tokens."""


@contextmanager
def plain_attention(model: nn.Module, length: int) -> Iterator[None]:
    """Within the block a model on a CPU attends by plain matrix products, where the inputs are short.

    For the short inputs of training, which come with a mask of their own, these are faster there than the
    fused kernel, above all backwards. On a GPU, for longer inputs, or with gradient checkpointing, nothing
    changes.

    Args:
        model: What computes.
        length: Tokens of the longest input.
    """
    # Checkpointed parts are computed again outside of the block, and must be as they were within it.
    recomputed = any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
    if recomputed or length > SHORT or next(model.parameters()).device.type != "cpu":
        yield
        return
    with attending(configs_of(model), "eager"):
        yield
