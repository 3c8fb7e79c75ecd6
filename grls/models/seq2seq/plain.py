"""The generator protocol for any transformers sequence-to-sequence model.

Legend: B inputs, R rows (live beams), L longest input, d model width, V vocabulary.

Cross-attention keys and values belong to an input, not to a beam. They are computed once, and gathered again
only when the rows of an input change in number or place. Self-attention is gathered by parent row at every
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from grls.errors import ConfigError, Option
from grls.index.rows import Ints
from grls.models.base import cache_argument, positions_in
from grls.models.head import Head, HeadRows


class Seq2SeqGenerator:
    """Runs an ``AutoModelForSeq2SeqLM`` for the decoder.

    The model is not changed: set its device, precision and mode (eval or train) first.

    Args:
        model: The model; its config must name ``decoder_start_token_id`` and ``pad_token_id``.

    Raises:
        ConfigError: The model has no output head or no decoder start token.
    """

    def __init__(self, model: Any):
        self.model = model
        self.cache_name = cache_argument(model)
        self.start_token = start_token(model)
        self.pad_token = int(model.config.pad_token_id or 0)
        if model.get_output_embeddings() is None:
            raise ConfigError(f"{type(model).__name__} has no output head; load it as a seq2seq LM.")
        self.head = Head(model)
        _ = self.head.linear  # tested now, before searches share the model

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.model.device
        return device

    def open(self, inputs: Sequence[Sequence[int]]) -> Seq2SeqSession:
        """Begin to decode a batch of B inputs (token ids)."""
        return Seq2SeqSession(self, inputs)

    @torch.inference_mode()
    def encode(self, inputs: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Encoder states ``[B, L, d]`` and attention mask ``[B, L]``."""
        longest = max(len(row) for row in inputs)
        ids = np.full((len(inputs), longest), self.pad_token, dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(inputs):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        tokens = torch.from_numpy(ids).to(self.device)
        attention = torch.from_numpy(mask).to(self.device)
        output = self.model.get_encoder()(input_ids=tokens, attention_mask=attention)
        return output.last_hidden_state, attention

    def forward(self, states: Tensor, mask: Tensor, tokens: Tensor, cache: Any = None) -> Tensor:
        """The input of the head, ``[R, length, d]``, for decoder inputs ``tokens [R, length]``."""
        arguments = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=states),
            "attention_mask": mask,
            "decoder_input_ids": tokens,
            self.cache_name: cache,
            "use_cache": cache is not None,
        }
        return self.head.read(**arguments)


class Seq2SeqSession(HeadRows):
    """The decoding of one batch; see :class:`grls.models.base.Session`.

    Args:
        generator: The model.
        inputs: B inputs as token ids.
    """

    def __init__(self, generator: Seq2SeqGenerator, inputs: Sequence[Sequence[int]]):
        self._generator = generator
        self._head = generator.head
        self._encoded, self._encoded_mask = generator.encode(inputs)
        self._states, self._mask = self._encoded, self._encoded_mask
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._owner = np.arange(len(inputs))
        self._hidden = self._encoded

    def first(self) -> None:
        """Feed the start token to one row per input."""
        self._feed(np.full(len(self._owner), self._generator.start_token))

    def step(self, parents: Ints, tokens: Ints) -> None:
        """Row r becomes row ``parents[r]`` continued by ``tokens[r]``."""
        chosen = torch.from_numpy(parents).to(self._generator.device)
        with torch.inference_mode():
            if not np.array_equal(parents, np.arange(len(self._owner))):
                self._cache.self_attention_cache.batch_select_indices(chosen)
            owner = self._owner[parents]
            if not np.array_equal(owner, self._owner):
                self._cache.cross_attention_cache.batch_select_indices(chosen)
                chosen_inputs = torch.from_numpy(owner).to(self._generator.device)
                self._states = self._encoded[chosen_inputs]
                self._mask = self._encoded_mask[chosen_inputs]
                self._owner = owner
        self._feed(tokens)

    def _feed(self, tokens: Ints) -> None:
        column = torch.from_numpy(tokens).to(self._generator.device)[:, None]
        with torch.inference_mode():
            hidden = self._generator.forward(self._states, self._mask, column, self._cache)
            self._hidden = hidden[:, -1]


def start_token(model: Any) -> int:
    """The start token of the decoder.

    Raises:
        ConfigError: The config of the model names no ``decoder_start_token_id``, or one that is no token.
    """
    for config in (getattr(model, "generation_config", None), model.config):
        token = getattr(config, "decoder_start_token_id", None)
        if token is None:
            continue
        most = getattr(model.config, "decoder", model.config).vocab_size
        if type(token) is not int or not 0 <= token < most:
            raise ConfigError(
                f"decoder_start_token_id is {token!r} (of generation_config.json or config.json); "
                f"expected the number of a token, 0 to {most - 1}: correct it, or copy the file from the "
                "source of the model."
            )
        return token
    raise ConfigError(
        f"{type(model).__name__} names no decoder_start_token_id; set it in the model's config.json."
    )


def check_positions(model: Any, input_length: int, target_length: int) -> None:
    """Refuse lengths beyond the positions of a model (T5 has relative positions, without a limit).

    Args:
        model: A sequence-to-sequence model, or a causal model, which needs positions for input and target
            together.
        input_length: The longest input in tokens.
        target_length: The longest target sequence in tokens, end token included.

    Raises:
        ConfigError: The model has fewer positions.
    """
    config = model.config
    if not config.is_encoder_decoder:
        most = positions_in(config)
        if most is not None and input_length + target_length > most:
            raise ConfigError(
                f"inputs of {input_length} and passages of {target_length} tokens, but the model has {most} "
                f"positions; lower {Option('limits.input')} or {Option('limits.passage')} (in training "
                f"{Option('data.max_input_tokens')} or {Option('data.max_passage_tokens')})."
            )
        return
    for what, part, length, option in (
        ("inputs", getattr(config, "encoder", config), input_length, "max_input_tokens"),
        ("passages", getattr(config, "decoder", config), target_length, "max_passage_tokens"),
    ):
        most = positions_in(part)
        if most is not None and length > most:
            raise ConfigError(
                f"{what} of {length} tokens, but the model has {most} positions; set "
                f"{Option(option)} (in training {Option(f'data.{option}')}) to at most {most - 1}."
            )
