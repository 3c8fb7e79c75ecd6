"""Selects the adapter of a model: sequence-to-sequence or causal."""

from __future__ import annotations

from typing import Any

from grls.errors import ConfigError
from grls.models.causal.slots import CausalGenerator, CausalTrees, plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqTrees, plant


def is_causal(model: Any) -> bool:
    """Whether a model reads its input as a prefix of its output."""
    return not model.config.is_encoder_decoder


def plain_generator(model: Any) -> Seq2SeqGenerator | CausalGenerator:
    """The model for the plain search.

    Raises:
        ConfigError: The model cannot be used as a generator.
    """
    return CausalGenerator(model) if is_causal(model) else Seq2SeqGenerator(model)


def slot_model(generator: Seq2SeqGenerator | CausalGenerator) -> Seq2SeqTrees | CausalTrees | None:
    """The model for the fast search; None if only the plain search supports the model."""
    if isinstance(generator, Seq2SeqGenerator):
        return plant(generator)
    try:
        return plant_causal(generator.model)
    except ConfigError:
        return None
