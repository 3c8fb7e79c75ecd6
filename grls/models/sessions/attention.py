"""Selects the implementation of attention in a transformers model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def attending(configs: list[Any], name: str) -> Iterator[None]:
    """A context in which these configs name another implementation of attention.

    Args:
        configs: The configs of all parts of a model (:func:`configs_of`).
        name: The name of the implementation in transformers.
    """
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = name
        yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation = implementation


def configs_of(module: nn.Module) -> list[Any]:
    """The configs of a model and its parts, each once."""
    every: list[Any] = [getattr(part, "config", None) for part in module.modules()]
    return list({id(config): config for config in every if config is not None}.values())


SHORT = 256
"""The longest input, in tokens, for plain products: they store a number per head for each pair of tokens."""


@contextmanager
def plain_attention(model: nn.Module, length: int) -> Iterator[None]:
    """A context in which a model on a CPU attends by plain matrix products, if the inputs are short.

    For short inputs with a mask, as in training, they are faster on a CPU than the fused kernel, above all in
    the backward pass. On a GPU, for longer inputs, or with gradient checkpointing, nothing changes.

    Args:
        model: The model.
        length: Tokens of the longest input.
    """
    # Checkpointed parts are computed again outside of the block, and must not change then.
    recomputed = any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
    if recomputed or length > SHORT or next(model.parameters()).device.type != "cpu":
        yield
        return
    with attending(configs_of(model), "eager"):
        yield
