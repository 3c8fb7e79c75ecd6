"""The generator protocol for a causal language model in a plain form, against which the fast search is
tested.

Legend: B inputs, R rows (live beams), L longest input, V vocabulary.

An input is a prefix of the output. Its last token opens the output, like the start token of a decoder. Inputs
are padded on the left, so that the next token of every row is at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from grls.errors import ConfigError, out_of_memory
from grls.index.rows import Ints
from grls.io.turns import turn
from grls.models.base import cache_argument
from grls.models.head import Head, HeadRows
from grls.models.sessions.memory import agree


class CausalGenerator:
    """Runs an ``AutoModelForCausalLM`` for the plain search.

    The model is not changed: set its device, precision and mode (eval or train) first.

    Args:
        model: The model.

    Raises:
        ConfigError: The model has no output head, or computes something else when its memory is reordered (a
            recurrent model).
    """

    def __init__(self, model: Any):
        self.model = model
        self.cache_name = cache_argument(model)
        name = type(model).__name__
        if model.get_output_embeddings() is None:
            raise ConfigError(f"{name} has no output head; load it as a causal LM.")
        self.head = Head(model)
        try:
            with turn(model):  # another thread may have replaced parts of the model
                agrees = self._tried()
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if out_of_memory(error):
                raise
            raise ConfigError(f"{name} cannot be used as a generator: {error}.") from error
        if not agrees:
            raise ConfigError(f"{name} computes something else step by step; it is not supported.")

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.model.device
        return device

    def open(self, inputs: Sequence[Sequence[int]]) -> CausalSession:
        """Begin to decode a batch of B inputs (token ids)."""
        return CausalSession(self, inputs)

    @torch.inference_mode()
    def _tried(self) -> bool:
        """Test on a small batch whether the head and single steps give the logits of the model."""
        training = self.model.training
        self.model.eval()
        try:
            paths = torch.tensor([[5, 6, 3], [5, 6, 4], [3, 4, 5]], device=self.device)
            expected = self.model(input_ids=paths).logits[:, -1].float()
            read = self.head.read(input_ids=paths)[:, -1]
            if not agree(self.head.all(read), expected, read.dtype):
                return False
            session = self.open([[3, 4], [5]])
            session.first()
            session.step(np.array([1, 1, 0]), np.array([6, 6, 5]))
            session.step(np.array([0, 1]), np.array([3, 4]))
            return agree(self.head.all(session._hidden), expected[:2], session._hidden.dtype)
        finally:
            self.model.train(training)


class CausalSession(HeadRows):
    """The decoding of one batch; see :class:`grls.models.base.Session`.

    Args:
        generator: The model.
        inputs: B inputs as token ids.
    """

    def __init__(self, generator: CausalGenerator, inputs: Sequence[Sequence[int]]):
        longest = max(len(row) for row in inputs)
        tokens = np.zeros((len(inputs), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for i, row in enumerate(inputs):
            tokens[i, longest - len(row) :] = row
            mask[i, longest - len(row) :] = 1
        self._generator = generator
        self._head = generator.head
        self._inputs = torch.from_numpy(tokens).to(generator.device)
        self._mask = torch.from_numpy(mask).to(generator.device)
        self._cache = DynamicCache()

    def first(self) -> None:
        """Read the inputs; afterwards there is one row per input."""
        self._feed(self._inputs, (self._mask.cumsum(1) - 1).clamp(min=0))

    def step(self, parents: Ints, tokens: Ints) -> None:
        """Row r becomes row ``parents[r]`` continued by ``tokens[r]``."""
        device = self._generator.device
        chosen = torch.from_numpy(parents).to(device)
        with torch.inference_mode():
            if not np.array_equal(parents, np.arange(len(self._mask))):
                self._cache.batch_select_indices(chosen)
            self._mask = self._mask[chosen]
        positions = self._mask.sum(1, keepdim=True)
        self._mask = torch.cat((self._mask, torch.ones_like(positions)), dim=1)
        self._feed(torch.from_numpy(tokens).to(device)[:, None], positions)

    def _feed(self, tokens: Tensor, positions: Tensor) -> None:
        arguments = {
            "input_ids": tokens,
            "attention_mask": self._mask,
            "position_ids": positions,
            self._generator.cache_name: self._cache,
            "use_cache": True,
        }
        with torch.inference_mode():
            self._hidden = self._head.read(**arguments)[:, -1]
