"""States of a frozen encoder, computed once for each input and kept.

Legend: b inputs of a batch, s longest of them, n tokens of one, d model width.

A frozen encoder without dropout says the same of an input in every epoch. Kept states save its forward pass
(it has no backward pass) from the second epoch on; they pay where inputs recur, which those of hops with an
order drawn anew each epoch seldom do. The module knows nothing of losses or of decoders.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from grls.errors import ConfigError

GIB = 2**30


class EncoderCache:
    """Encodes inputs, each distinct one once as long as there is room.

    The encoder computes in eval mode, so there is no dropout in it: that, and rounding (an input may be
    padded otherwise), is what the cache changes. States lie in the main memory of each process: in bfloat16
    under autocast to bfloat16, where the decoder's layers would round them anyway, else as the encoder gave
    them. A full cache keeps what it has: every epoch asks for all inputs again, so what is thrown out to make
    room would be missing first.

    Args:
        limit: Most memory of the states, in GiB.

    Attributes:
        bytes: Memory of the states that are kept.
    """

    def __init__(self, limit: float):
        self.limit = limit * GIB
        self.bytes = 0
        self._states: dict[bytes, Tensor] = {}

    def __len__(self) -> int:
        return len(self._states)

    def clear(self) -> None:
        """Forget everything: the encoder has other weights now."""
        self._states.clear()
        self.bytes = 0

    def __call__(self, encoder: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The states of a batch of inputs, ``[b, s, d]``, zero where padded; they have no gradient.

        Args:
            encoder: A transformers encoder, always the same one.
            input_ids: ``[b, s]``, padded on the right; one of them has s tokens.
            attention_mask: ``[b, s]``.
        """
        lengths = attention_mask.sum(1).tolist()
        rows = [row[:length] for row, length in zip(input_ids.cpu(), lengths, strict=True)]
        keys = [row.numpy().tobytes() for row in rows]
        missing = {key: n for n, key in enumerate(keys) if key not in self._states}
        new = self._encode(encoder, [*missing.values()], lengths, input_ids, attention_mask)
        found = dict(zip(missing, new, strict=True))
        states = [self._states[key] if key in self._states else found[key] for key in keys]
        self._keep(found)
        return pad_sequence(states, batch_first=True).to(input_ids.device)

    @torch.no_grad()
    def _encode(
        self, encoder: Any, some: list[int], lengths: list[int], input_ids: Tensor, attention_mask: Tensor
    ) -> list[Tensor]:
        """The states of some inputs, ``[n, d]`` each, in main memory."""
        if not some:
            return []
        width = max(lengths[n] for n in some)
        training = encoder.training
        encoder.eval()
        states = encoder(
            input_ids=input_ids[some, :width], attention_mask=attention_mask[some, :width]
        ).last_hidden_state
        encoder.train(training)
        kind = input_ids.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            states = states.bfloat16()
        states = states.cpu()
        # Each its own memory, not a span that would hold the whole batch.
        return [states[row, : lengths[n]].clone() for row, n in enumerate(some)]

    def _keep(self, found: dict[bytes, Tensor]) -> None:
        for key, states in found.items():
            size = states.numel() * states.element_size()
            if self.bytes + size <= self.limit:
                self._states[key] = states
                self.bytes += size


def check_cache(limit: float, model: Any) -> None:
    """Refuse a cache that cannot work; a limit of 0 means none, and always can.

    Raises:
        ConfigError: The limit is negative, or the model has no encoder or one that is trained.
    """
    if limit < 0:
        raise ConfigError(f"cache_encoder is a number of GiB, 0 for no cache; got {limit}.")
    if not limit:
        return
    if not model.config.is_encoder_decoder:
        raise ConfigError(f"a {type(model).__name__} has no encoder: leave cache_encoder at 0.")
    if any(parameter.requires_grad for parameter in model.get_encoder().parameters()):
        raise ConfigError(
            "cache_encoder keeps what a frozen encoder gives: set freeze_encoder to true, or cache_encoder "
            "to 0."
        )
