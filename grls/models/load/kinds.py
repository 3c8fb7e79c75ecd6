"""Selects the adapter of a model: sequence-to-sequence or causal.

A model is tried before it decodes: some small inputs must get the logits of its own forward pass. That
takes as long as a search. So a retriever folder holds what its model was tried with (:func:`tried_with`),
and a model that is opened with the same is not tried again.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
import transformers

import grls
from grls.errors import ConfigError
from grls.models.base import is_causal
from grls.models.causal.slots import CausalGenerator, CausalTrees, plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqTrees, plant
from grls.models.sessions.memory import SlotModel


def tried_with() -> dict[str, str]:
    """What the result of a trial depends on beside the model: the versions."""
    return {
        "grls": grls.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
    }


def plain_generator(model: Any, tried: bool = False) -> Seq2SeqGenerator | CausalGenerator:
    return CausalGenerator(model, tried) if is_causal(model) else Seq2SeqGenerator(model, tried)


def slot_model(generator: Seq2SeqGenerator | CausalGenerator, tried: bool = False) -> SlotModel | None:
    """The model for the fast search; None if only the plain search supports the model."""
    try:
        if isinstance(generator, Seq2SeqGenerator):
            return Seq2SeqTrees(generator) if tried else plant(generator)
        return CausalTrees(generator.model, tried=True) if tried else plant_causal(generator.model)
    except ConfigError:
        return None
