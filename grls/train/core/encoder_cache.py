"""Cache of the states of a frozen encoder: each input is encoded once.

Legend: b inputs of a batch, s longest of them, n tokens of one, d model width.

A frozen encoder without dropout gives the same states for an input in every epoch. The cache saves its
forward pass (there is no backward pass) from the second epoch on. It pays where inputs recur; the inputs of
hops with an order drawn anew each epoch seldom do. The module knows nothing of losses or decoders.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from grls.errors import ConfigError, at_least

GIB = 2**30


class EncoderCache:
    """Encodes each distinct input once, as long as there is room.

    The encoder computes in eval mode, without dropout. The cache changes nothing else but rounding, as an
    input may be padded to another length. States are in the main memory of each process: in bfloat16 under
    autocast to bfloat16, where the decoder's layers would round them anyway, else in the encoder's type. A
    full cache evicts nothing: every epoch reads all inputs again, so an evicted input would be the first to
    be missed.

    Args:
        limit: Memory limit of the states, in GiB.

    Attributes:
        bytes: Memory of the cached states.
    """

    def __init__(self, limit: float):
        self.limit = limit * GIB
        self.bytes = 0
        self._states: dict[bytes, Tensor] = {}

    def __len__(self) -> int:
        return len(self._states)

    def clear(self) -> None:
        """Empty the cache, for an encoder with new weights."""
        self._states.clear()
        self.bytes = 0

    def __call__(self, encoder: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The states of a batch of inputs, ``[b, s, d]``, zero where padded, without gradient.

        Args:
            encoder: A transformers encoder, always the same one.
            input_ids: ``[b, s]``, padded on the right; one of them has s tokens.
            attention_mask: ``[b, s]``.
        """
        lengths = attention_mask.sum(1).tolist()
        rows = [row[:length] for row, length in zip(input_ids.cpu(), lengths, strict=True)]
        keys = [row.numpy().tobytes() for row in rows]
        missing = {key: n for n, key in enumerate(keys) if key not in self._states}
        encoded = self._encode(encoder, [*missing.values()], lengths, input_ids, attention_mask)
        new = dict(zip(missing, encoded, strict=True))
        states = [self._states[key] if key in self._states else new[key] for key in keys]
        self._keep(new)
        return pad_sequence(states, batch_first=True).to(input_ids.device)

    @torch.no_grad()
    def _encode(
        self, encoder: Any, inputs: list[int], lengths: list[int], input_ids: Tensor, attention_mask: Tensor
    ) -> list[Tensor]:
        """The states of these inputs of the batch, ``[n, d]`` each, in main memory."""
        if not inputs:
            return []
        width = max(lengths[n] for n in inputs)
        training = encoder.training
        encoder.eval()
        states = encoder(
            input_ids=input_ids[inputs, :width], attention_mask=attention_mask[inputs, :width]
        ).last_hidden_state
        encoder.train(training)
        kind = input_ids.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            states = states.bfloat16()
        states = states.cpu()
        # A slice would keep the memory of the whole batch, so each is copied.
        return [states[row, : lengths[n]].clone() for row, n in enumerate(inputs)]

    def _keep(self, new: dict[bytes, Tensor]) -> None:
        for key, states in new.items():
            size = states.numel() * states.element_size()
            if self.bytes + size <= self.limit:
                self._states[key] = states
                self.bytes += size


def check_cache(limit: float, model: Any) -> None:
    """Refuse a cache that cannot work; a limit of 0 means no cache.

    Raises:
        ConfigError: The limit is negative, or the model has no encoder or a trained one.
    """
    at_least(0, "model.", cache_encoder=limit)
    if not limit:
        return
    if not model.config.is_encoder_decoder:
        raise ConfigError(f"a {type(model).__name__} has no encoder: leave cache_encoder at 0.")
    if any(parameter.requires_grad for parameter in model.get_encoder().parameters()):
        raise ConfigError(
            "cache_encoder keeps the states of a frozen encoder: set freeze_encoder to true, or "
            "cache_encoder to 0."
        )
